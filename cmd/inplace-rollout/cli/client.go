package cli

import (
	"fmt"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/inplace-rollout/inplace-rollout/pkg/server"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
)

// RESTConfig returns how a command reaches the cluster that its flags and the kubeconfig name.
func RESTConfig(cluster genericclioptions.RESTClientGetter) (*rest.Config, error) {
	config, err := cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	config.UserAgent = version.Get().UserAgent()
	return server.Unlimited(config), nil
}

// NewClients returns a client for typed objects, in protobuf, and one for objects as they are
// stored.
func NewClients(config *rest.Config) (kubernetes.Interface, dynamic.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("making a dynamic client: %w", err)
	}
	return client, objects, nil
}
