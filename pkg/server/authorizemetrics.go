package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
)

const (
	// rememberAllowed is how long somebody goes on being let through without a question, so that a
	// scrape costs the API server nothing.
	rememberAllowed = time.Minute
	rememberDenied  = 10 * time.Second
	reviewTimeout   = 10 * time.Second
)

// reviewBackoff is for questions to the API server that fail. A scrape waits 10 s, mostly.
var reviewBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3}

// newReviewer returns the client for authorizeMetrics. Anybody may have it ask, so it has a limit of its own, and what
// is written to workloads does not wait for it.
func newReviewer(kubeconfig string) (kubernetes.Interface, error) {
	config, err := RESTConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 20, 40
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for reviews: %w", err)
	}
	return client, nil
}

// authorizeMetrics lets a request through to next if its bearer token is that of a user who may do
// with the path what the request asks for. The API server knows both: TokenReview and SubjectAccessReview.
func authorizeMetrics(client kubernetes.Interface, next http.Handler) (http.Handler, error) {
	authentication, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout, WebhookRetryBackoff: &reviewBackoff, CacheTTL: rememberAllowed,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("preparing to review tokens: %w", err)
	}
	authorization, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), WebhookRetryBackoff: &reviewBackoff, AllowCacheTTL: rememberAllowed, DenyCacheTTL: rememberDenied,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("preparing to review access: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known, err := authentication.AuthenticateRequest(r)
		if unanswered(err) {
			http.Error(w, "the API server does not say whose token this is", http.StatusServiceUnavailable)
			return
		}
		if err != nil || !known {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "a bearer token of this cluster is needed", http.StatusUnauthorized)
			return
		}
		verb, path := strings.ToLower(r.Method), r.URL.Path
		decision, _, err := authorization.Authorize(r.Context(), authorizer.AttributesRecord{User: who.User, Verb: verb, Path: path})
		switch {
		case decision == authorizer.DecisionAllow:
			next.ServeHTTP(w, r)
		case err != nil:
			http.Error(w, "the API server does not say who can read this", http.StatusServiceUnavailable)
		default:
			http.Error(w, fmt.Sprintf("forbidden: %s has no right to %s %s", who.User.GetName(), verb, path), http.StatusForbidden)
		}
	}), nil
}

// unanswered reports whether an error is of the API server, or of the way there, and not what it says of a token.
func unanswered(err error) bool {
	if all, are := errors.AsType[utilerrors.Aggregate](err); are {
		return slices.ContainsFunc(all.Errors(), unanswered)
	}
	_, answer := errors.AsType[*apierrors.StatusError](err)
	_, network := errors.AsType[*url.Error](err)
	return answer || network || errors.Is(err, context.DeadlineExceeded)
}
