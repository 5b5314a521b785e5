package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/util/podutils"
)

// operators is the prefix of the names of operators.
const operators = "operator:"

// addOperators gives StatefulSets an operator. These have draws of their own, so that a seed makes what else it
// makes without them.
func (w *World) addOperators() {
	g := generator{rand.New(rand.NewPCG(w.Seed, 3))}
	for i := range w.Workloads {
		w.Workloads[i].Operated = w.Workloads[i].Kind == "StatefulSet" && !g.in(3)
	}
}

// operate has an operator look after the pods of a StatefulSet, until the world is cleared.
func (p *player) operate(ctx context.Context, w Workload) error {
	config := p.cp.RESTConfig()
	config.WarningHandler = rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: operators + p.namespace, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for sleep(ctx, 200*time.Millisecond) {
			p.operated(ctx, client, w.Name)
		}
	})
	p.cleanUp = append(p.cleanUp, func(context.Context) error {
		stop()
		running.Wait()
		return nil
	})
	return nil
}

// operated is one turn of an operator: it deletes a pod that is not of the newest revision when no other one is
// down, and only while the status speaks of the set's generation. It knows nothing of us, and what fails, it tries
// in its next turn. The pods are read first, so that none is taken for older than the revision.
func (p *player) operated(ctx context.Context, client kubernetes.Interface, name string) {
	list, err := client.CoreV1().Pods(p.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return
	}
	looked := time.Now()
	set, err := client.AppsV1().StatefulSets(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || set.Status.ObservedGeneration != set.Generation || set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		return
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, set) })
	down := func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil || !podutils.IsPodReady(&pod) }
	for _, pod := range pods {
		others := slices.ContainsFunc(pods, func(other corev1.Pod) bool { return other.UID != pod.UID && down(other) })
		stale := pod.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision && pod.DeletionTimestamp == nil
		if stale && !others && time.Since(looked) < 200*time.Millisecond { // nobody edits between its look and its deed
			seen := metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
			_ = client.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: &seen}) // or the next time
			return
		}
	}
}
