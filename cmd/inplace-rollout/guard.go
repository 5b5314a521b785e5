package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// guard lets those through whose token is that of a user who may get the path. The API server
// knows both. (k8s.io/apiserver has the same, but with CEL, gRPC and OpenTelemetry the binary would have 83 MB
// instead of 46.)
type guard struct {
	client kubernetes.Interface
	next   http.Handler
	// allowed are those that were let through in the last minute, by hashes of token and path, so
	// that a scrape costs the API server nothing.
	allowed *cache.LRUExpireCache
}

const (
	rememberAllowed = time.Minute
	maxAllowed      = 100
)

func newGuard(client kubernetes.Interface, next http.Handler) *guard {
	return &guard{client, next, cache.NewLRUExpireCache(maxAllowed)}
}

var (
	errUnauthenticated = errors.New("a bearer token of this cluster is needed")
	errForbidden       = errors.New("forbidden")
)

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := g.check(r)
	switch {
	case err == nil:
		g.next.ServeHTTP(w, r)
	case errors.Is(err, errUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, err.Error(), http.StatusUnauthorized)
	case errors.Is(err, errForbidden):
		http.Error(w, err.Error(), http.StatusForbidden)
	default:
		klog.FromContext(r.Context()).Error(err, "Could not ask who may read", "path", r.URL.Path)
		http.Error(w, "the API server cannot say who may read this", http.StatusServiceUnavailable)
	}
}

func (g *guard) check(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" || strings.Contains(token, " ") {
		return errUnauthenticated
	}
	key := sha256.Sum256([]byte(token + " " + r.URL.Path)) // no token has a space
	if _, known := g.allowed.Get(key); known {
		return nil
	}
	user, err := g.authenticate(r.Context(), token)
	if err != nil {
		return err
	}
	if err := g.authorize(r.Context(), user, r.URL.Path); err != nil {
		return err
	}
	g.allowed.Add(key, nil, rememberAllowed)
	return nil
}

func (g *guard) authenticate(ctx context.Context, token string) (user authenticationv1.UserInfo, err error) {
	review, err := g.client.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return user, fmt.Errorf("reviewing a token: %w", err)
	}
	if !review.Status.Authenticated {
		return user, errUnauthenticated
	}
	return review.Status.User, nil
}

func (g *guard) authorize(ctx context.Context, user authenticationv1.UserInfo, path string) error {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review, err := g.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("reviewing the access of %s: %w", user.Username, err)
	}
	if !review.Status.Allowed {
		return fmt.Errorf("%w: %s may not get %s", errForbidden, user.Username, path)
	}
	return nil
}
