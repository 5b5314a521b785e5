package main

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/inplace-rollout/inplace-rollout/test/webhook"
)

// meddlers are the webhooks by their names.
var meddlers = map[string]func(*unstructured.Unstructured){
	setsCPU: func(o *unstructured.Unstructured) {
		if cpu := o.GetAnnotations()["example.com/cpu"]; cpu != "" {
			ofApp(o, cpu, "resources", "requests", "cpu")
		}
	},
	setsImage: func(o *unstructured.Unstructured) {
		if image := o.GetAnnotations()["example.com/image"]; image != "" {
			ofApp(o, image, "image")
		}
	},
	stamps: func(o *unstructured.Unstructured) {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["example.com/stamp"] = "stamped"
		o.SetAnnotations(annotations)
	},
}

// ofApp sets a field of the template's first container.
func ofApp(o *unstructured.Unstructured, value string, field ...string) {
	containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) == 0 {
		return
	}
	if container, is := containers[0].(map[string]any); is && unstructured.SetNestedField(container, value, field...) == nil {
		_ = unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers") // it is there
	}
}

// meddle registers the world's webhook.
func (p *player) meddle(ctx context.Context) error {
	mutate := meddlers[p.Webhook]
	stop, err := webhook.Start(ctx, p.admin, webhook.Options{
		Namespace: p.namespace, Again: p.Seed%2 == 0,
		Mutate: func(_ *admissionv1.AdmissionRequest, o *unstructured.Unstructured) { mutate(o) },
	})
	if err != nil {
		return err
	}
	p.cleanUp = append(p.cleanUp, stop)
	return nil
}
