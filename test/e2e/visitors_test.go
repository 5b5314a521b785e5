//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"
)

// visitors count on an app's pods, one visitor per pod, and notice every request
// that is lost and every count that is forgotten.
type visitors struct {
	app    *app
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu   sync.Mutex
	seen seen
}

// seen is what visitors have noticed.
type seen struct {
	requests int // answered or not
	lost     int // not answered
	falls    int // how often a counter was behind its visitor
	lostSum  int64
	why      string // the first loss
}

func (s seen) String() string {
	return fmt.Sprintf("%5d requests, %3d lost; counters fell back %d times, %d counts forgotten", s.requests, s.lost, s.falls, s.lostSum)
}

// visit sends a visitor to every pod, until the test or stop ends.
func (a *app) visit() *visitors {
	a.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	v := &visitors{app: a, cancel: cancel}
	a.t.Cleanup(v.stop)
	for i := range a.replicas {
		v.all.Go(func() { v.keepCounting(ctx, i) })
	}
	return v
}

func (v *visitors) stop() {
	v.cancel()
	v.all.Wait()
}

// report ends the visits and returns what was noticed.
func (v *visitors) report() seen {
	v.stop()
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

// keepCounting stays with a pod, over one connection, as long as it answers; then it takes
// the pod at its place among those that are Ready.
func (v *visitors) keepCounting(ctx context.Context, place int) {
	browser := node.HTTP(2 * time.Second)
	defer browser.CloseIdleConnections()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	address, last := "", int64(0)
	for ctx.Err() == nil {
		number, err := int64(0), error(nil)
		if address == "" {
			address, err = v.app.addressOf(ctx, place)
		}
		if err == nil {
			number, err = count(ctx, browser, address)
		}
		if ctx.Err() != nil {
			return
		}
		v.note(number, last, err)
		if err != nil {
			address = ""
		} else {
			last = number
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (v *visitors) note(number, last int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen.requests++
	if err != nil {
		v.seen.lost++
		if v.seen.why == "" {
			v.seen.why = err.Error()
		}
		return
	}
	if number <= last {
		v.seen.falls++
		v.seen.lostSum += last + 1 - number
	}
}

// addressOf is that of the pod at a place among those that are Ready.
func (a *app) addressOf(ctx context.Context, place int) (string, error) {
	pods, err := a.list(ctx)
	if err != nil {
		return "", err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !podutils.IsPodReady(&p) })
	if len(pods) == 0 {
		return "", errors.New("no pod is Ready")
	}
	return pods[place%len(pods)].Status.PodIP, nil
}

// count adds one to a pod's counter and returns it.
func count(ctx context.Context, browser *http.Client, address string) (int64, error) {
	body, err := post(ctx, browser, "http://"+address+":8080/")
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(strings.TrimSpace(body), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("counting: %w", err)
	}
	return number, nil
}

func post(ctx context.Context, browser *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("making request: %w", err)
	}
	response, err := browser.Do(request)
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

// hold makes the program in a pod hold so many bytes of memory.
func hold(t *testing.T, pod *corev1.Pod, bytes int64) {
	t.Helper()
	browser := node.HTTP(10 * time.Second)
	defer browser.CloseIdleConnections()
	if _, err := post(t.Context(), browser, fmt.Sprintf("http://%s:8080/memory?bytes=%d", pod.Status.PodIP, bytes)); err != nil {
		t.Fatal(err)
	}
}
