package main

import (
	"fmt"
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// vpa is the recommender's own model of one workload, which has had a VerticalPodAutoscaler
// since it was created. The pods of all versions count together, as they do there.
type vpa struct {
	run    *run
	all    *model.AggregateContainerState
	pods   []*model.ContainerState // of the run's pods
	states model.ContainerNameToAggregateStateMap
	fed    minute
	logic  logic.PodResourceRecommender
}

// defaults are those of the recommender's flags. They cannot be had from its package config,
// which does not build with the client of Prometheus that we have.
var defaults = logic.RecommendationConfig{
	SafetyMarginFraction: 0.15,
	PodMinCPUMillicores:  25, PodMinMemoryMb: 250,
	TargetCPUPercentile: 0.9, TargetMemoryPercentile: 0.9,
	LowerBoundCPUPercentile: 0.5, LowerBoundMemoryPercentile: 0.5,
	UpperBoundCPUPercentile: 0.95, UpperBoundMemoryPercentile: 0.95,
	ConfidenceIntervalCPU: 24 * time.Hour, ConfidenceIntervalMemory: 24 * time.Hour,
}

func watch(r *run) *vpa {
	v := &vpa{
		run: r, all: model.NewAggregateContainerState(), states: model.ContainerNameToAggregateStateMap{},
		logic: logic.CreatePodResourceRecommender(defaults),
	}
	v.states[r.container()] = v.all
	for n := 1; n < r.containers; n++ {
		v.states[fmt.Sprint("other-", n)] = model.NewAggregateContainerState()
	}
	for range r.pods {
		v.pods = append(v.pods, model.NewContainerState(nil, v.all))
	}
	return v
}

// feed tells the model what has happened until then.
func (v *vpa) feed(until minute) error {
	for i, p := range v.run.pods {
		kills := p.kills
		for at := max(v.fed, p.start); at < min(until, p.end()); at++ {
			for len(kills) > 0 && kills[0] < at {
				kills = kills[1:]
			}
			if len(kills) > 0 && kills[0] == at {
				if err := v.pods[i].RecordOOM(at.time(), 0); err != nil {
					return fmt.Errorf("telling of an OOM kill: %w", err)
				}
			}
			u := p.uses[at-p.start]
			cpu := model.ContainerUsageSample{MeasureStart: at.time(), Resource: model.ResourceCPU, Usage: model.CPUAmountFromCores(u.cpu)}
			memory := model.ContainerUsageSample{MeasureStart: at.time(), Resource: model.ResourceMemory, Usage: model.MemoryAmountFromBytes(u.memory)}
			if !v.pods[i].AddSample(&cpu) || !v.pods[i].AddSample(&memory) {
				return fmt.Errorf("the samples of minute %d are not taken", at)
			}
		}
	}
	v.fed = until
	return nil
}

// target is what it recommends. It is asked in the order of time.
func (v *vpa) target(at minute) (request, error) {
	if err := v.feed(at); err != nil {
		return request{}, err
	}
	target := v.logic.GetRecommendedPodResources(v.states)[v.run.container()].Target
	return request{
		cpu:    model.CoresFromCPUAmount(target[model.ResourceCPU]),
		memory: model.BytesFromMemoryAmount(target[model.ResourceMemory]),
	}, nil
}
