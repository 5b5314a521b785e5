package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
)

// completionTimeout is how long somebody who has pressed TAB waits for a cluster.
const completionTimeout = 5 * time.Second

// completion offers what list finds, as far as it goes on from what was typed.
func completion(list func(ctx context.Context, args []string, toComplete string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found, err := list(ctx, args, toComplete)
		if err != nil {
			cobra.CompErrorln(err.Error())
			return nil, cobra.ShellCompDirectiveError
		}
		found = slices.DeleteFunc(found, func(name string) bool { return !strings.HasPrefix(name, toComplete) })
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlags is for those of kubectl's own flags that kubectl completes, too.
func (c *cluster) completeFlags(cmd *cobra.Command) {
	cli.CompleteFlag(cmd, "namespace", completion(func(ctx context.Context, _ []string, _ string) ([]string, error) {
		if err := c.connect(); err != nil {
			return nil, err
		}
		list, err := c.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		names := make([]string, len(list.Items))
		for i := range list.Items {
			names[i] = list.Items[i].Name
		}
		return names, nil
	}))
	cli.CompleteFlag(cmd, "context", completion(func(context.Context, []string, string) ([]string, error) {
		config, err := c.flags.ToRawKubeConfigLoader().RawConfig()
		return slices.Sorted(maps.Keys(config.Contexts)), err
	}))
}

// completeWorkload offers the opted-in workloads of the namespace that are wanted:
// sts/web, or web after the kind.
func (c *cluster) completeWorkload(wanted func(metav1.Object) bool) cobra.CompletionFunc {
	return completion(func(ctx context.Context, args []string, toComplete string) ([]string, error) {
		if len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/") {
			return nil, nil // it is named already
		}
		if err := c.connect(); err != nil {
			return nil, err
		}
		found, err := c.optedIn(ctx, c.namespace, "")
		if err != nil {
			return nil, err
		}
		var names []string
		for _, u := range found {
			if name, fits := argumentFor(u, args, toComplete); fits && wanted(u) {
				names = append(names, name)
			}
		}
		return names, nil
	})
}

// argumentFor names a workload in the way in which somebody has begun to name one.
func argumentFor(u *unstructured.Unstructured, args []string, toComplete string) (name string, fits bool) {
	for _, kind := range kindOf(u).names() {
		name = kind + "/" + u.GetName()
		switch {
		case len(args) == 1 && args[0] == kind:
			return u.GetName(), true
		case len(args) == 0 && strings.HasPrefix(name, toComplete):
			return name, true
		}
	}
	return "", false
}
