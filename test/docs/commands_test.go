package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// elsewhere are the commands of the documentation that are not run here, each
// with what proves it.
var elsewhere = map[string]string{
	"make test":             ".ci/run",
	"make test-all":         "TestParts in test/all: this test is a part of it",
	"make image":            "make e2e, which runs the image",
	"make release VERSION=": "make release-check, which builds and uses it",
	"make demo NODE=real":   "make e2e, which tests test/demo on the real node",
	"make demo-guarded":     "make e2e, which tests test/demo on the real node",
	"make bench":            "TestRollouts in test/benchmark",
	"make bench SHAPES=":    "TestRollouts in test/benchmark",
	"make bench-report":     "TestPage in test/benchmark",
	"make bench-stuck":      "TestStuckNeighbours in test/integration",
	"make matrix":           "make test-all, which runs each row",

	"inplace-rollout promote sts/db":         "guarded-rollouts.md, which has a canary to promote",
	"inplace-rollout promote deployment/web": "TestGuardedRollouts in test/integration",

	"inplace-rollout undo deployment/web":           "TestGuardedRollouts in test/integration",
	"inplace-rollout undo deployment/web --dry-run": "TestUndo in cmd/inplace-rollout",
	"inplace-rollout undo sts/db --to-revision=":    "TestUndo in cmd/inplace-rollout",

	"make matrix ONLY=":  "make test-all, which runs each row",
	"make mutants":       "TestMutants in test/mutants",
	"make mutants ONLY=": "TestMutants in test/mutants",
	"make soak":          "TestWorlds in test/worlds",
	"make soak WORLDS=":  "TestWorlds in test/worlds",
	"make picture":       "README.md runs make demo, of which it is a drawing; test/demo tests that",
	"make backtest":      "TestPage in initialresources/backtest",

	"inplace-rollout controller --leader-elect":                                                                        "make e2e, where the Deployment runs it: it does not end",
	"inplace-rollout controller --kubeconfig ~/.kube/config --dry-run":                                                 "the tests of pkg/statefulset and pkg/deployment: it does not end",
	"kubectl -n inplace-rollout logs deployment/inplace-rollout --all-pods":                                            "test/e2e, if the controller is not ready: simulated pods have none",
	"inplace-rollout estimate -f web.yaml --prometheus-url=":                                                           "TestEstimate in initialresources",
	"inplace-rollout estimate -f web.yaml --patch --prometheus-url=":                                                   "TestEstimate in initialresources",
	"inplace-rollout estimate nginx:1.25 redis --cluster-wide --prometheus-url=":                                       "TestEstimate in initialresources",
	"inplace-rollout estimator --prometheus-url http://prometheus.monitoring:9090":                                     "TestInitialResources in test/e2e, where the Deployment runs it: it does not end",
	"inplace-rollout estimator --prometheus-url http://prometheus.monitoring:9090 --percentile 95 --rung 14d:image:60": "initialresources/test/estimator, which runs it with other numbers: it does not end",
	"inplace-rollout release --all -A --for-good --yes":                                                                "docs/install.md, in a cluster of its own: nothing is held after it",
	"inplace-rollout webhook": "test/hold, which runs it: it does not end",
	"inplace-rollout webhook --tls-cert-file /tls/tls.crt --tls-private-key-file /tls/tls.key": "TestFiles in pkg/webhook: it does not end",
	"kubectl apply -k deploy/overlays/webhook":                                                 "test/hold, and TestWebhook in test/e2e",
	"kubectl delete mutatingwebhookconfiguration inplace-rollout":                              "TestWebhook in test/e2e: here the policies hold",
	"kind load image-archive bin/images/inplace-rollout.tar":                                   "nothing, as README.md says: there is no kind here",
	"kubectl edit": "TestEdits in test/e2e: it wants an editor",

	"kustomize edit set image inplace-rollout=":                                                        "a command of another project; test/e2e installs deploy/ as it is",
	"helm install inplace-rollout deploy/chart -n platform --create-namespace --set image.repository=": "TestLifecycle in test/chart",
	"helm test inplace-rollout -n platform":                                                            "TestHelmTest in test/chart",
	"helm uninstall inplace-rollout -n platform":                                                       "TestLifecycle in test/chart",
	"helm uninstall inplace-rollout -n platform --no-hooks":                                            "a command of another project; what it needs is below \"Remove\"",
	"helm upgrade":  "TestHelm in test/integration",
	"helm rollback": "TestHelm in test/integration",
	"helm template": "a command of another project",
}

// programs are what a command of the documentation begins with.
var programs = regexp.MustCompile(`(^|\| *)(\$ )?(sudo |[A-Z]+=\S+ )*(kubectl|inplace-rollout|bin/\S+|make|go|docker|kustomize|helm|flux|argocd|curl|promtool)( |$)`)

// commandsOf splits a block of shell into its commands, without comments; lines
// that go on, and quotes over several lines, stay together.
func commandsOf(script string) []string {
	var commands []string
	open := ""
	for line := range strings.Lines(script) {
		open += line
		if rest, continued := strings.CutSuffix(strings.TrimSpace(open), `\`); continued {
			open = rest
			continue
		}
		if strings.Count(open, "'")%2 != 0 || strings.Count(open, `"`)%2 != 0 {
			continue
		}
		if command := withoutComment(open); command != "" {
			commands = append(commands, command)
		}
		open = ""
	}
	return commands
}

var comment = regexp.MustCompile(`(^|\s)# .*`)

func withoutComment(line string) string {
	return strings.TrimSpace(comment.ReplaceAllString(line, ""))
}

// runnable is a block's script without the commands that are proven elsewhere.
func runnable(script string) string {
	var kept strings.Builder
	for line := range strings.Lines(script) {
		if provenElsewhere(withoutComment(line)) == "" {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// provenElsewhere is the entry of the list that the command is, or begins with
// if the entry ends where a value follows.
func provenElsewhere(command string) string {
	for known := range elsewhere {
		if command == known || strings.HasSuffix(known, "=") && strings.HasPrefix(command, known) {
			return known
		}
	}
	return ""
}

// mentioned reports whether a command in a sentence is, or begins, one that is run.
func mentioned(command string, run []string) bool {
	command, _, _ = strings.Cut(command, "…")
	command = strings.TrimSpace(command)
	for _, whole := range run {
		for _, part := range regexp.MustCompile(`\|\|?|&&|;`).Split(whole, -1) {
			part = strings.Join(strings.Fields(part), " ")
			if part == command || strings.HasPrefix(part, command+" ") {
				return true
			}
		}
	}
	return false
}

// session is one command of a console block and what it prints.
type session struct{ command, output string }

// sessions splits a console block: what follows a line "$ command" is its output.
func sessions(text string) ([]session, error) {
	var all []session
	for line := range strings.Lines(text) {
		if command, prompt := strings.CutPrefix(line, "$ "); prompt {
			all = append(all, session{command: strings.TrimSpace(command)})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%q comes before any command", line)
		}
		all[len(all)-1].output += line
	}
	return all, nil
}

// matches compares what a command printed with what the page shows: blanks are
// all the same, and … stands for anything.
func matches(printed, shown string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(shown)), "…", ".*")
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(squeeze(printed))
}
