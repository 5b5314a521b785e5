// Package counter talks to the program of test/images/counter in a pod.
package counter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/cgroup"
)

// Add adds one to the counter in a pod and returns it.
func Add(ctx context.Context, client *http.Client, pod *corev1.Pod) (int64, error) {
	body, err := ask(ctx, client, http.MethodPost, pod, "/")
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(strings.TrimSpace(body), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("counting: %w", err)
	}
	return number, nil
}

// Limits are what the program in a pod reads of its own cgroup.
func Limits(ctx context.Context, client *http.Client, pod *corev1.Pod) (cgroup.Limits, error) {
	body, err := ask(ctx, client, http.MethodGet, pod, "/limits")
	if err != nil {
		return cgroup.Limits{}, err
	}
	var limits cgroup.Limits
	if _, err := fmt.Sscan(body, &limits.CPU, &limits.Memory); err != nil {
		return limits, fmt.Errorf("parsing limits %q: %w", body, err)
	}
	return limits, nil
}

// Hold makes the program in a pod hold so many bytes of memory.
func Hold(ctx context.Context, client *http.Client, pod *corev1.Pod, bytes int64) error {
	_, err := ask(ctx, client, http.MethodPost, pod, fmt.Sprintf("/memory?bytes=%d", bytes))
	return err
}

func ask(ctx context.Context, client *http.Client, method string, pod *corev1.Pod, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:8080%s", pod.Status.PodIP, path), http.NoBody)
	if err != nil {
		return "", fmt.Errorf("making request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("asking: %s: %s", response.Status, body)
	}
	return string(body), nil
}
