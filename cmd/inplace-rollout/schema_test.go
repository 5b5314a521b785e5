package main

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/inplace-rollout/inplace-rollout/cmd/inplace-rollout/cli"
	"github.com/inplace-rollout/inplace-rollout/pkg/capacity"
	"github.com/inplace-rollout/inplace-rollout/pkg/judge"
	"github.com/inplace-rollout/inplace-rollout/pkg/version"
	"github.com/inplace-rollout/inplace-rollout/test/must"
	"github.com/inplace-rollout/inplace-rollout/test/schema"
)

const docs = "../../docs" // from here

// What commands write for programs is as docs/schemas says.
func TestSchemas(t *testing.T) {
	state, states := schema.Words(stateWaiting, stateRequested, stateAccepted, stateInfeasible, stateDone, stateKeptBack)
	fate, fates := schema.Words(judge.Unchanged, judge.Live, judge.Deferred, judge.ContainerRestart, judge.PodRestart,
		judge.AfterDelete, judge.Infeasible, judge.KeptBack, judge.New, judge.ScaledIn)
	words := map[reflect.Type]*jsonschema.Schema{state: states, fate: fates}

	reports := reportsOf(t, statesStage(t))
	var list, one bytes.Buffer
	encoded(t, statusView{format: "json"}.print(&list, reports, now), cli.EncodeNext(&one, "json", reports[0]))
	schema.Assert[statusReport](t, docs, statusKind, words, list.Bytes(), one.Bytes())

	list.Reset()
	encoded(t, cli.EncodeList(&list, "json", planKind, []planReport{planOf(t, manyStage(t)), planOf(t, newSetStage(t, 1))}))
	schema.Assert[planReport](t, docs, planKind, words, list.Bytes())

	one.Reset()
	encoded(t, cli.Encode(&one, "json", versions{TypeMeta: cli.Type(versionKind), Client: version.Get(), Controllers: []controllerOfLease{{Namespace: "a", Version: "v1"}}}))
	schema.Assert[versions](t, docs, versionKind, nil, one.Bytes())

	outcome, outcomes := schema.Words(passed, failed, unknown, noted)
	answer, answers := schema.Words(yes, no, notKnown)
	check, err := checked(t, "json")
	if exitCode(err) != 1 {
		t.Fatal(err)
	}
	schema.Assert[checkReport](t, docs, checkKind, map[reflect.Type]*jsonschema.Schema{outcome: outcomes, answer: answers}, []byte(check))
}

func encoded(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		must.Do(t, err)
	}
}

// planOf is the plan of the rollout that a stage is in.
func planOf(t *testing.T, s *stage) planReport {
	t.Helper()
	o := planOptions{cluster: s.cluster(t)}
	live := s.live(t)
	return must.Get(o.report(t.Context(), capacity.New(o.client, capacity.All, now), edit{live: live, after: live}))(t)
}
