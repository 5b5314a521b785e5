// Command argocd prints what Argo CD itself takes the health of an object for. It reads the object as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/argoproj/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var object unstructured.Unstructured
	if err := json.NewDecoder(os.Stdin).Decode(&object.Object); err != nil {
		return fmt.Errorf("reading the object: %w", err)
	}
	is, err := health.GetResourceHealth(&object, nil)
	if err != nil {
		return fmt.Errorf("judging the object: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(is)
}
