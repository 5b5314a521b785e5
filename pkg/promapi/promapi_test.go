package promapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/util/cert"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestAlternatives: a name is what it is, whatever is in it.
func TestAlternatives(t *testing.T) {
	for want, values := range map[string][]string{
		`""`:                           nil,
		`"web-0"`:                      {"web-0"},
		`"a|b"`:                        {"a", "b"},
		`"a\\|b|c"`:                    {"a|b", "c"},
		`"\"\\}\\) or vector\\(1\\)#"`: {`"}) or vector(1)#`},
		`"\\\\"`:                       {`\`},
		`"a\nb"`:                       {"a\nb"},
		`"\\.\\*"`:                     {".*"},
		"\"`\"":                        {"`"},
		`"a�b"`:                        {"a\xffb"},
	} {
		must.Equal(t, Alternatives(values), want, "the alternatives %q", values)
	}
	must.Equal(t, AnyOf("pod", []string{"a", "b"}), `pod=~"a|b"`, "a matcher")
}

// TestParseMatcher: what a matcher says cannot end it.
func TestParseMatcher(t *testing.T) {
	for text, want := range map[string]string{
		`cluster="eu-1"`: `cluster="eu-1"`, "cluster=eu-1": `cluster="eu-1"`, ` job !~ "a|b" `: `job!~"a|b"`, "job=~a,b": `job=~"a,b"`, "job!=": `job!=""`,
		`a="\""`: `a="\""`, `a=b"} or c`: `a="b\"} or c"`,
		"cluster": "", `a=~"("`: "", `a="b"} or c`: "", `a="b`: "", "1=b": "", "=b": "",
	} {
		if got, err := ParseMatcher(text); (err != nil) != (want == "") || got != want && want != "" {
			t.Errorf("of %s it is %s, %v, want %s", text, got, err, want)
		}
	}
}

// FuzzAlternatives: what is filled in is one string of PromQL, which has Go's escapes, and the regular expression in it, which
// PromQL anchors, matches the values and nothing else that is at hand.
func FuzzAlternatives(f *testing.F) {
	f.Add("web-0", "web-1")
	f.Add(`"} or vector(1) #`, "\n")
	f.Add(`\`, `.*|a`)
	f.Add("`", "'\x00\xff")
	f.Fuzz(func(t *testing.T, a, b string) {
		filled := Alternatives([]string{a, b})
		if strings.ContainsAny(filled, "\n\r\x00") || !closes(filled) {
			t.Fatalf("%q and %q become %s, which does not end where it ends", a, b, filled)
		}
		expression := must.Get(strconv.Unquote(filled))(t)
		anchored := must.Get(regexp.Compile("^(?s:" + expression + ")$"))(t)
		for _, value := range []string{a, b} {
			if utf8.ValidString(value) && !anchored.MatchString(value) {
				t.Errorf("%s does not match %q", expression, value)
			}
		}
		for _, other := range []string{a + b, "x" + a, b + "x", "", "x", a + "|" + b} {
			if other != a && other != b && utf8.ValidString(a+b) && anchored.MatchString(other) {
				t.Errorf("%s matches %q, too", expression, other)
			}
		}
	})
}

// closes reports whether the first quote that is not escaped, after the first character, is the last character.
func closes(text string) bool {
	if text == "" || text[0] != '"' {
		return false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i == len(text)-1
		}
	}
	return false
}

// TestAnswers: what comes of each answer is an error that says what to do.
func TestAnswers(t *testing.T) {
	advice := Advice{URL: "--where", Refused: "show it this", Untrusted: "trust that"}
	for name, tt := range map[string]struct {
		status  int
		body    string
		most    int64
		want    string
		toomuch bool // it is taken for that
	}{
		"what it is asked for":   {status: 200, body: `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"2"]}]}}`},
		"as long as it may be":   {status: 200, body: `{"status":"success","data":{"resultType":"vector","result":[]}}`, most: 63},
		"one byte longer":        {status: 200, body: `{"status":"success","data":{"resultType":"vector","result":[]}}`, most: 62, want: "the answer has more than 62 bytes"},
		"another type":           {status: 200, body: `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, want: "the answer is a scalar"},
		"a warning":              {status: 200, body: `{"status":"success","warnings":["a store is away"],"data":{"resultType":"vector","result":[]}}`, want: "the answer might be incomplete: a store is away"},
		"HTML":                   {status: 200, body: "<html>sign in</html>", want: "is no Prometheus: <html>sign in</html>"},
		"half an answer":         {status: 200, body: `{"status":"succ`, want: "asking Prometheus for it"},
		"who are you?":           {status: 401, body: "who are you?", want: "401 Unauthorized: who are you?): show it this"},
		"nothing there":          {status: 404, want: "--where must be the URL without /api/v1"},
		"a bad query":            {status: 400, body: `{"status":"error","errorType":"bad_data","error":"parse error"}`, want: "parse error"},
		"a query that fails":     {status: 422, body: `{"status":"error","errorType":"execution","error":"many-to-many"}`, want: "many-to-many", toomuch: true},
		"an error of the server": {status: 500, body: "oh", want: "server error: 500"},
		"a gateway that waits":   {status: 504, body: "late", want: "504 Gateway Timeout", toomuch: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = fmt.Fprint(w, tt.body)
			}))
			defer server.Close()
			client := must.Get(New(Server{URL: server.URL, Timeout: time.Minute, MaxBytes: tt.most, Advice: advice}, nil))(t)
			vector, err := client.Instant(t.Context(), "it", "vector(1)", time.Now())
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want …%s…, and the answer %v", err, tt.want, vector)
			case TooMuch(err) != tt.toomuch:
				t.Errorf("it is taken for too much: %v", TooMuch(err))
			}
			if long := (TooLong{}); errors.As(err, &long) != strings.Contains(tt.want, "more than") {
				t.Errorf("%v is taken for too long, or is not", err)
			}
		})
	}
}

// TestReach: a server wants TLS, and a certificate and a token, or a password and a tenant. What is wrong is said, and the token may
// change. What many tenants need is in one file, as for Prometheus' own tools.
func TestReach(t *testing.T) {
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	must.Do(t, err)
	pair := must.Get(tls.X509KeyPair(crt, key))(t)
	var token atomic.Value
	token.Store("first")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, basic := r.BasicAuth()
		switch {
		case r.URL.Path != "/prometheus/api/v1/query":
			w.WriteHeader(http.StatusNotFound)
		case basic && (user != "us" || password != "secret" || r.Header.Get("X-Scope-OrgID") != "team"):
			http.Error(w, "no org id", http.StatusUnauthorized)
		case !basic && r.Header.Get("Authorization") != "Bearer "+token.Load().(string):
			w.WriteHeader(http.StatusUnauthorized)
		case !basic && (len(r.TLS.PeerCertificates) == 0 || !r.TLS.PeerCertificates[0].Equal(pair.Leaf)):
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	dir := t.TempDir()
	write := func(name, data string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(file, []byte(data), 0o600))
		return file
	}
	ca := write("tls.crt", string(crt))
	good := Server{
		URL: server.URL + "/prometheus/", Timeout: time.Minute, Advice: Advice{URL: "--where", Refused: "show it this", Untrusted: "trust that"},
		CAFile: ca, CertFile: ca, KeyFile: write("tls.key", string(key)), BearerTokenFile: write("token", "first\n"),
	}
	reached := func(change func(*Server), want string) {
		t.Helper()
		s := good
		change(&s)
		client, err := New(s, nil)
		if err == nil {
			_, err = client.Instant(t.Context(), "it", "vector(1)", time.Now())
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want …%s…", err, want)
		}
	}
	reached(func(*Server) {}, "")
	reached(func(s *Server) { s.CAFile, s.InsecureSkipVerify = "", true }, "")
	for want, change := range map[string]func(*Server){
		"trust that":                              func(s *Server) { s.CAFile = "" },
		"401 Unauthorized: ): show it this":       func(s *Server) { s.BearerTokenFile = "" },
		"no such file":                            func(s *Server) { s.BearerTokenFile = "gone" },
		"403 Forbidden":                           func(s *Server) { s.CertFile, s.KeyFile = "", "" },
		"--where must have a host name":           func(s *Server) { s.URL = strings.Replace(s.URL, "127.0.0.1", "localhost", 1) },
		"server gave HTTP response to HTTPS":      func(s *Server) { s.URL = strings.Replace(plain.URL, "http:", "https:", 1) },
		"Client sent an HTTP request to an HTTPS": func(s *Server) { s.URL = strings.Replace(s.URL, "https:", "http:", 1) },
	} {
		reached(change, want)
	}

	const header = "http_headers: {X-Scope-OrgID: {values: [team]}}\n"
	auth := "basic_auth: {username: us, password_file: " + write("password", "secret") + "}\n"
	trust := "tls_config: {ca_file: " + ca + "}\n"
	for config, want := range map[string]string{
		auth + header + trust:       "",
		auth + trust:                "no org id",
		header + trust:              "show it this",
		auth + header:               "trust that",
		"unknown_key: 1":            filepath.Join(dir, "http.yaml"),
		auth + "bearer_token: x":    "at most one of",
		"tls_config: {ca_file: no}": "no such file",
	} {
		file := write("http.yaml", config)
		reached(func(s *Server) { *s = Server{URL: s.URL, Timeout: s.Timeout, Advice: s.Advice, HTTPConfigFile: file} }, want)
	}

	client := must.Get(New(good, nil))(t)
	for _, step := range []struct {
		does func()
		want bool
	}{{func() {}, true}, {func() { token.Store("second") }, false}, {func() { write("token", "second\n") }, true}} {
		step.does()
		if _, err := client.Instant(t.Context(), "it", "vector(1)", time.Now()); (err == nil) != step.want {
			t.Errorf("with the token of then: %v", err)
		}
	}
}

// TestRedirect: what is sent elsewhere is asked there, unless the file says otherwise.
func TestRedirect(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/there") {
			http.Redirect(w, r, "/there"+r.URL.Path, http.StatusTemporaryRedirect)
			return
		}
		_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	defer server.Close()
	for _, follow := range []bool{true, false} {
		file := filepath.Join(t.TempDir(), "http.yaml")
		must.Do(t, os.WriteFile(file, fmt.Append(nil, "follow_redirects: ", follow), 0o600))
		client := must.Get(New(Server{URL: server.URL, HTTPConfigFile: file, Timeout: time.Minute}, nil))(t)
		_, err := client.Instant(t.Context(), "it", "vector(1)", time.Now())
		must.Equal(t, err == nil, follow, "answered, by the error %v", err)
	}
}
