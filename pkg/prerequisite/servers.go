package prerequisite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// serverTimeout is for all dry runs of one API server: an address may lead nowhere from here.
const serverTimeout = 5 * time.Second

// servers are the addresses of the API servers, as each of them publishes its own behind the Service kubernetes. There are none
// where a single one is known, which is asked anyway.
func (c *Cluster) servers(ctx context.Context) ([]string, error) {
	if c.At == nil {
		return nil, nil
	}
	slice, err := c.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // they publish none
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading EndpointSlice default/kubernetes, which has the addresses of the API servers: %w", err)
	}
	port := "443"
	for _, p := range slice.Ports {
		if p.Port != nil {
			port = strconv.Itoa(int(*p.Port))
		}
	}
	var servers []string
	for _, endpoint := range slice.Endpoints {
		if ptr.Deref(endpoint.Conditions.Ready, true) && len(endpoint.Addresses) > 0 {
			servers = append(servers, net.JoinHostPort(endpoint.Addresses[0], port))
		}
	}
	if slices.Sort(servers); len(servers) < 2 {
		return nil, nil
	}
	return servers, nil
}

// askEach adds to what is known what each of the API servers says. Only what it has answered counts: an address may be that of a server
// that has gone, or be out of reach for pods.
func (c *Cluster) askEach(ctx context.Context, way Way, namespace string, h *Holding) {
	servers, err := c.servers(ctx)
	h.Unasked = err
	found := make([]Holding, len(servers))
	var asking sync.WaitGroup
	for i, address := range servers {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, serverTimeout)
			defer cancel()
			if client, err := c.At(address); err != nil {
				found[i].Unasked = err
			} else {
				found[i] = c.holding(ctx, way, client, namespace)
			}
		})
	}
	asking.Wait()
	for i, address := range servers {
		at := func(err error) error { return fmt.Errorf("the API server %s: %w", address, err) }
		unasked := found[i].Unasked
		for _, kind := range HeldKinds {
			switch broken, unattended := found[i].Broken[kind], found[i].Unattended[kind]; {
			case errors.As(broken, &unsure{}):
				unasked = cmp.Or(unasked, broken)
			case broken != nil && h.Broken[kind] == nil:
				h.Broken[kind] = at(broken)
			case unattended != nil && h.Unattended[kind] == nil:
				h.Unattended[kind] = at(unattended)
			}
		}
		if unasked != nil {
			h.Unasked = errors.Join(h.Unasked, at(unasked))
		}
	}
}
