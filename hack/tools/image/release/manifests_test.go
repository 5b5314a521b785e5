package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestWebhookManifests: API servers for which the webhook is have no MutatingAdmissionPolicy, and kubectl stops at what they
// do not have. So neither of the files for them has one, and the one with initial resources is whole.
func TestWebhookManifests(t *testing.T) {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	kubectl, helm := filepath.Join(root, "bin", "k8s", "kubectl"), filepath.Join(root, "bin", "gitops", "helm")
	for _, program := range []string{kubectl, helm} {
		if _, err := os.Stat(program); err != nil {
			t.Skip(err) // make release-check has them
		}
	}
	t.Chdir(root)
	r := &release{options: options{version: "v0.1.0", image: "example.com/inplace-rollout", output: t.TempDir(), kubectl: kubectl, helm: helm}, digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	if err := r.writeManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	for file, parts := range map[string][]string{
		"install-webhook.yaml":                   {"inplace-rollout", "inplace-rollout-webhook"},
		"install-webhook-initial-resources.yaml": {"inplace-rollout", "inplace-rollout-webhook", "inplace-rollout-estimator"},
	} {
		text, err := os.ReadFile(filepath.Join(r.output, file))
		if err != nil {
			t.Error(err)
			continue
		}
		if bytes.Contains(text, []byte("\nkind: MutatingAdmissionPolicy")) {
			t.Errorf("%s has a MutatingAdmissionPolicy", file)
		}
		for _, part := range parts {
			if !bytes.Contains(text, []byte("\n        app: "+part+"\n")) {
				t.Errorf("%s has no pods of %s", file, part)
			}
		}
	}
}
