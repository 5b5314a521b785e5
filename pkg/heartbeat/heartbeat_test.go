package heartbeat_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/api"
	"github.com/inplace-rollout/inplace-rollout/pkg/heartbeat"
	"github.com/inplace-rollout/inplace-rollout/test/build"
	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// server is an API server whose clock is late, with the patches that it got: how many to the heartbeat's own ServiceAccount, and the
// last ones to that and to the controller's, where the version before looks.
type server struct {
	*fake.Clientset

	patches              atomic.Int32
	last, former, checks atomic.Value // string
	defaults             atomic.Value // string: all that were told
	tells                atomic.Int32
	down                 atomic.Bool
}

func newServer(user string) *server {
	s := &server{Clientset: fake.NewClientset(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: api.HeartbeatName}})}
	s.last.Store("")
	s.former.Store("")
	s.checks.Store("")
	s.defaults.Store("")
	review := &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: user}}}
	build.Answers(s, "create", "selfsubjectreviews", review, nil)
	s.PrependReactor("get", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		if s.patches.Load() == 0 {
			return false, nil, nil
		}
		return true, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReadyUntilAnnotation: s.until()}}}, nil
	})
	s.PrependReactor("patch", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if s.down.Load() {
			return true, nil, apierrors.NewServiceUnavailable("away")
		}
		patch := action.(clienttesting.PatchActionImpl)
		text := patch.Namespace + " " + strings.Replace(string(patch.Patch), `"name":"`+patch.Name+`",`, "", 1)
		written := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: patch.Namespace, Name: patch.Name, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: api.HeartbeatManager, Time: &metav1.Time{Time: time.Now().Add(-late)}},
		}}}
		written.Annotations = map[string]string{}
		for annotation, told := range map[string]*atomic.Value{api.ChecksAnnotation: &s.checks, api.DefaultsAnnotation: &s.defaults} {
			if _, said, told := strings.Cut(told.Load().(string), `"`+annotation+`":"`); told {
				written.Annotations[annotation], _, _ = strings.Cut(said, `"`)
			}
		}
		switch {
		case len(patch.PatchOptions.DryRun) > 0:
		case strings.Contains(text, api.DefaultsAnnotation) && patch.PatchOptions.FieldManager != api.HeartbeatManager:
			s.defaults.Store(s.defaults.Load().(string) + text)
		case patch.PatchOptions.FieldManager != api.HeartbeatManager: // the heartbeat of the version before is applied without it
			s.tells.Add(1)
			s.checks.Store(text)
		case patch.Name == api.HeartbeatName:
			s.patches.Add(1)
			s.last.Store(text)
		case patch.Name == "ipr":
			s.former.Store(text)
		}
		return true, written, nil
	})
	return s
}

// until is what the last patch says of the heartbeat.
func (s *server) until() string {
	_, until, _ := strings.Cut(s.last.Load().(string), `ready-until":"`)
	until, _, _ = strings.Cut(until, `"`)
	return until
}

const (
	late = time.Hour
	user = "system:serviceaccount:platform:ipr"
)

// fraction of a second in a heartbeat.
var fraction = regexp.MustCompile(`\.\d+`)

// TestEndsWhileNotReady: at an upgrade, policies are replaced before controllers. The lead then goes by one of the version before, which
// does not beat, and edits are held meanwhile.
func TestEndsWhileNotReady(t *testing.T) {
	for _, ready := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(user)
			var replaced atomic.Bool
			heart := heartbeat.New(s, s, func() error {
				if replaced.Load() {
					return errors.New("the policies are of another version")
				}
				return nil
			}, api.LetGo)
			ctx, cancel := context.WithCancel(t.Context())
			go heart.Run(ctx)
			synctest.Wait()
			replaced.Store(!ready)
			cancel()
			synctest.Wait()
			before := s.patches.Load()
			if heart.HandOver(ctx); (s.patches.Load() > before) != ready {
				t.Errorf("it was ready at the end: %t, and has written %d times, the last time %s", ready, s.patches.Load()-before, s.last.Load())
			}
		})
	}
}

// TestMakesItsObject: without it policies are not asked, so a controller would never be ready that waits for that.
func TestMakesItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(user)
		heart := heartbeat.New(s, s, func() error { return errors.New("the policies are not in force") }, api.Hold)
		go heart.Run(t.Context())
		time.Sleep(time.Minute)
		must.Equal(t, s.patches.Load(), 0, "writes of what is there: %s", s.last.Load())
		must.Do(t, s.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "platform", api.HeartbeatName))
		time.Sleep(11 * time.Second)
		const want = `platform {"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"platform"},"automountServiceAccountToken":false}`
		if got := s.last.Load(); got != want || s.former.Load() != "" {
			t.Errorf("made is %s, and written to the controller's %s, want %s", got, s.former.Load(), want)
		}
		heart.Stop(t.Context())
	})
}

// TestTells: admission hears which checks there are, once that is known, and plans what the defaults are, where only policies of this
// version look.
func TestTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type checks struct {
			names []string
			known bool
		}
		var there atomic.Value
		there.Store(checks{})
		s := newServer(user)
		heart := heartbeat.New(s, s, func() error { return nil }, api.Hold)
		heart.Checks = func() ([]string, bool) { c := there.Load().(checks); return c.names, c.known }
		heart.Defaults = "error-timeout=1m0s"
		go heart.Run(t.Context())
		const says = `platform {"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"platform"`
		for i, tt := range []struct {
			about string
			there checks
			want  string
			tells int32
		}{
			{"unknown", checks{}, "", 0},
			{"none", checks{nil, true}, says + `,"annotations":{"inplace-rollout.io/checks":""}}}`, 1},
			{"some", checks{[]string{"throttling", "memory"}, true}, says + `,"annotations":{"inplace-rollout.io/checks":"memory,throttling"}}}`, 2},
			{"not known any more", checks{}, says + `,"annotations":{"inplace-rollout.io/checks":"memory,throttling"}}}`, 2},
			{"more than an object takes", checks{[]string{strings.Repeat("a", 65<<10)}, true}, says + "}}", 3},
		} {
			there.Store(tt.there)
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := s.checks.Load(); got != tt.want || s.tells.Load() != tt.tells {
				t.Errorf("%d, %s: told is %s, %d times, want %s, %d times", i, tt.about, got, s.tells.Load(), tt.want, tt.tells)
			}
		}
		must.Equal(t, s.defaults.Load(), any(says+`,"annotations":{"inplace-rollout.io/defaults":"error-timeout=1m0s"}}}`), "the defaults, which are told once")
		if beat, former := s.last.Load().(string), s.former.Load().(string); strings.Contains(beat+former, api.ChecksAnnotation) || strings.Contains(beat+former, api.DefaultsAnnotation) {
			t.Errorf("the version before takes it away, or refuses it, with the heartbeat: %s, %s", beat, former)
		}
	})
}

// TestBeats: the API server's clock counts, not ours.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(user)
		var missing atomic.Bool
		heart := heartbeat.New(s, s, func() error {
			if missing.Load() {
				return errors.New("a policy is missing")
			}
			return nil
		}, api.Hold)
		var began atomic.Int32
		heart.Began = func() { began.Add(1) }
		var leftOut atomic.Value
		leftOut.Store([]string{})
		heart.LeftOut = func() []string { return leftOut.Load().([]string) }
		heart.Standby = func() error { return errors.New("no replica leads") }
		if heart.Leads() || heart.Err() == nil {
			t.Error("it leads before it runs, or is as good as ready though nobody does")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { heart.Run(ctx); close(done) }()
		saying := func(at time.Time) string {
			return `platform {"kind":"ServiceAccount","apiVersion":"v1","metadata":{"namespace":"platform","annotations":{"inplace-rollout.io/left-out-namespaces":"` +
				strings.Join(leftOut.Load().([]string), ",") + `","inplace-rollout.io/ready-until":"` + at.UTC().Format(time.RFC3339) + `","inplace-rollout.io/when-absent":"Hold"}}`
		}
		expect := func(what string, patches int32, last string) {
			t.Helper()
			synctest.Wait()
			got, former := fraction.ReplaceAllString(s.last.Load().(string), ""), fraction.ReplaceAllString(s.former.Load().(string), "")
			if s.patches.Load() != patches || got != last+`,"automountServiceAccountToken":false}` || former != last+"}" {
				t.Errorf("%s: %d patches, the last %s and %s, want %d and %s", what, s.patches.Load(), got, former, patches, last)
			}
		}
		start := time.Now().Add(-late)
		expect("at once", 1, saying(start.Add(45*time.Second)))
		time.Sleep(25 * time.Second)
		expect("every 10 s", 3, saying(start.Add(65*time.Second)))
		if !heart.Leads() || began.Load() != 1 {
			t.Errorf("leads %t, and has begun %d times", heart.Leads(), began.Load())
		}
		must.Fails(t, "it beats", heart.Err(), "")
		missing.Store(true)
		time.Sleep(time.Minute)
		expect("while it is not ready", 3, saying(start.Add(65*time.Second)))
		missing.Store(false)
		leftOut.Store([]string{"kube-system", "team-a"})
		heart.Wake()
		expect("as soon as it is ready again", 4, saying(start.Add((85+45)*time.Second)))
		s.down.Store(true)
		time.Sleep(time.Minute)
		if err := heart.Err(); err == nil {
			t.Error("it is ready, and its heartbeat fails")
		}
		s.down.Store(false)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		must.Fails(t, "it beats again", heart.Err(), "")
		must.Equal(t, began.Load(), 3, "how often it has begun: at the start, after it was not ready, and after it failed")
		cancel()
		<-done
		last := s.patches.Load()
		ended := time.Now()
		heart.HandOver(ctx)
		if s.patches.Load() != last+1 || time.Since(ended) < 3*time.Second || s.last.Load() != s.former.Load() {
			t.Errorf("after the lead was given back, there were %d patches after %s, the last %s and %s", s.patches.Load()-last, time.Since(ended), s.last.Load(), s.former.Load())
		}
	})
}

// TestHandOver: a leader that ends waits until the next one beats, for longer where another has taken the lead.
func TestHandOver(t *testing.T) {
	for name, tt := range map[string]struct {
		followed bool
		beats    time.Duration // of the next one, after the lead was given back; none if 0
		waits    time.Duration
	}{
		"nobody follows":                   {waits: 5 * time.Second},
		"the next one beats":               {followed: true, beats: 3500 * time.Millisecond, waits: 4 * time.Second},
		"the next one is slow":             {followed: true, beats: 15500 * time.Millisecond, waits: 16 * time.Second},
		"the next one leads, and is unfit": {followed: true, waits: 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(user)
			run := func() (heart *heartbeat.Heart, end func()) {
				heart = heartbeat.New(s, s, func() error { return nil }, api.LetGo)
				heart.Followed = func(context.Context) bool { return tt.followed }
				ctx, cancel := context.WithCancel(t.Context())
				go heart.Run(ctx)
				synctest.Wait()
				return heart, func() { cancel(); synctest.Wait() }
			}
			first, end := run()
			end()
			if tt.beats > 0 {
				go func() {
					time.Sleep(tt.beats)
					_, end := run()
					end()
				}()
			}
			began := time.Now()
			first.HandOver(t.Context())
			must.Equal(t, time.Since(began), tt.waits, "%s: how long it waits", name)
		})
	}
}

// TestBeatsOfTheSameSecond: a process that ends takes only its own heartbeat away, though the next leader has beaten in the
// same second.
func TestBeatsOfTheSameSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(user)
		beat := func() (heart *heartbeat.Heart, until string) {
			heart = heartbeat.New(s, s, func() error { return nil }, api.LetGo)
			ctx, cancel := context.WithCancel(t.Context())
			go heart.Run(ctx)
			synctest.Wait()
			cancel()
			synctest.Wait()
			return heart, s.until()
		}
		first, until := beat()
		_, next := beat()
		if fraction.ReplaceAllString(until, "") != fraction.ReplaceAllString(next, "") || until == next {
			t.Fatalf("the heartbeats are %s and %s, want the same second, and not the same", until, next)
		}
		first.Stop(t.Context())
		if got := s.last.Load().(string); !strings.Contains(got, `"op":"test"`) || !strings.Contains(got, `"value":"`+until+`"`) {
			t.Errorf("it takes away with %s, want only %s to go", got, until)
		}
	})
}

// TestNeverBeaten: what has not led takes nothing away from the others.
func TestNeverBeaten(t *testing.T) {
	s := newServer(user)
	heart := heartbeat.New(s, s, func() error { return nil }, api.LetGo)
	heart.HandOver(t.Context())
	if s.patches.Load() != 0 || heart.Err() != nil {
		t.Errorf("%d patches, %v", s.patches.Load(), heart.Err())
	}
}

// TestNobody: the policies look for the heartbeat of a ServiceAccount.
func TestNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("admin")
		heart := heartbeat.New(s, s, func() error { return nil }, api.LetGo)
		ctx, cancel := context.WithCancel(t.Context())
		go heart.Run(ctx)
		time.Sleep(time.Minute)
		if err := heart.Err(); err == nil || s.patches.Load() != 0 {
			t.Errorf("%d patches, %v", s.patches.Load(), err)
		}
		cancel()
		synctest.Wait()
	})
}
