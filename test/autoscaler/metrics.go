package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Usage is the annotation of a pod that says what the metrics API reports of each of its
// containers, such as "cpu=300m,memory=400Mi". A pod without it is not in the metrics API.
const Usage = "sim.inplace-rollout.io/usage"

// group is what the metrics API serves.
const group = "metrics.k8s.io/v1beta1"

// podMetrics is a PodMetrics of that group: its Go type is in a module that nothing else here needs.
type podMetrics struct {
	Metadata   metav1.ObjectMeta  `json:"metadata"`
	Timestamp  metav1.Time        `json:"timestamp"`
	Window     string             `json:"window"`
	Containers []containerMetrics `json:"containers"`
}

type containerMetrics struct {
	Name  string            `json:"name"`
	Usage map[string]string `json:"usage"`
}

// serveMetrics serves a metrics API and has the API server pass requests on to it, as for the
// metrics-server.
func serveMetrics(ctx context.Context, client kubernetes.Interface) (stop func(context.Context) error, err error) {
	answer := func(w http.ResponseWriter, object any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object) // fails only if who asked has gone
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/"+group, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group,
			APIResources: []metav1.APIResource{{Name: "pods", Namespaced: true, Kind: "PodMetrics", Verbs: []string{"get", "list"}}},
		}, nil)
	})
	list := func(w http.ResponseWriter, r *http.Request) {
		items, err := listMetrics(r.Context(), client, r.PathValue("namespace"), r.URL.Query().Get("labelSelector"))
		answer(w, map[string]any{"kind": "PodMetricsList", "apiVersion": group, "items": items}, err)
	}
	mux.HandleFunc("GET /apis/"+group+"/pods", list)
	mux.HandleFunc("GET /apis/"+group+"/namespaces/{namespace}/pods", list)
	server := httptest.NewTLSServer(mux)
	unregister, err := register(ctx, client, server.Listener.Addr().String())
	return func(ctx context.Context) error {
		defer server.Close()
		return unregister(ctx)
	}, err
}

func listMetrics(ctx context.Context, client kubernetes.Interface, namespace, selector string) ([]podMetrics, error) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	items := []podMetrics{}
	for _, pod := range pods.Items {
		if pod.Annotations[Usage] == "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		usage := map[string]string{}
		for _, of := range strings.Split(pod.Annotations[Usage], ",") {
			resource, quantity, _ := strings.Cut(of, "=")
			usage[resource] = quantity
		}
		m := podMetrics{
			Metadata:  metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: pod.Labels},
			Timestamp: metav1.NewTime(time.Now()), Window: "1s",
		}
		for _, c := range pod.Spec.Containers {
			m.Containers = append(m.Containers, containerMetrics{Name: c.Name, Usage: usage})
		}
		items = append(items, m)
	}
	return items, nil
}

// register makes the group known. The Service is an ExternalName, because no endpoint may be a
// loopback address.
func register(ctx context.Context, client kubernetes.Interface, address string) (unregister func(context.Context) error, err error) {
	const name = "metrics"
	port, err := strconv.Atoi(address[strings.LastIndex(address, ":")+1:])
	if err != nil {
		return nil, fmt.Errorf("reading the port of %s: %w", address, err)
	}
	services, apis := client.CoreV1().Services(metav1.NamespaceSystem), "/apis/apiregistration.k8s.io/v1/apiservices"
	unregister = func(ctx context.Context) error {
		api := client.Discovery().RESTClient().Delete().AbsPath(apis, "v1beta1.metrics.k8s.io").Do(ctx).Error()
		return errors.Join(gone(api), gone(services.Delete(ctx, name, metav1.DeleteOptions{})))
	}
	if _, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}, metav1.CreateOptions{}); err != nil {
		return unregister, fmt.Errorf("creating the metrics API's Service: %w", err)
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": metav1.NamespaceSystem, "name": name, "port": port},
		},
	})
	if err != nil {
		return unregister, fmt.Errorf("encoding the APIService: %w", err)
	}
	if err := client.Discovery().RESTClient().Post().AbsPath(apis).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error(); err != nil {
		return unregister, fmt.Errorf("creating the APIService: %w", err)
	}
	return unregister, nil
}

// gone is the error of a deletion; nil if there was nothing to delete.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
