// Package controlplane runs a real Kubernetes control plane on 127.0.0.1 for
// tests: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and
// kwok, which plays the nodes and their kubelets.
//
// A pod on a node made by [ControlPlane.AddNode] is Running and Ready at once, or
// after the time that its annotation sim.inplace-rollout.io/start-time says,
// with the status that a kubelet would write. How the simulated kubelet treats
// a resize is chosen per pod by the annotation sim.inplace-rollout.io/resize,
// or else by the label of that name. The choice can be changed at any time.
//
//	mode        conditions                       allocatedResources  resources  status.observedGeneration
//	accepted    none, after 0.1 s                new                 new        new
//	delayed     PodResizeInProgress after 0.1 s  new                 old        new
//	            none, 2 s later                  new                 new        new
//	lasting     PodResizeInProgress after 0.1 s  new                 old        new
//	deferred    PodResizePending, Deferred       old                 old        new
//	infeasible  PodResizePending, Infeasible     old                 old        new
//	error       PodResizeInProgress, Error       new                 old        new
//	never       none                             old                 old        old
//
// No annotation and no label means accepted; an unknown mode is never. In every
// mode but never, a spec that is set back to what is running clears the
// conditions. The annotation sim.inplace-rollout.io/resize-time, such as "300ms",
// is how long an accepted resize takes. A running container whose resizePolicy
// says RestartContainer for a resource that changed gets a new containerID and
// startedAt and a higher restartCount, and stays Ready meanwhile.
//
// The annotation sim.inplace-rollout.io/kubelet: "1.33" makes it a kubelet of that version, which
// says no observedGeneration, in the status and the conditions alike, and looks at no pod again. It
// belongs to a node whose [Node].Kubelet says that version. That Kubernetes 1.33 lowers no memory
// limit is its API server's doing.
//
// The annotation sim.inplace-rollout.io/ready: "false" makes a Running pod not
// Ready, also from its birth, until the annotation is removed; "until-resized"
// makes it so when its size is changed for the first time. The annotation
// sim.inplace-rollout.io/fails-after, such as "3s", makes it so that long after a
// resize is done. Readiness gates count as on a real node: somebody else has to
// set their conditions.
//
// The annotation sim.inplace-rollout.io/rejects-cpu, such as "150m", has a kubelet reject a pod that requests that much cpu, for a
// TopologyAffinityError.
//
// The annotation sim.inplace-rollout.io/ready: "false" makes a node not Ready, too. Its kubelet goes on all the same: whoever wants it
// silent annotates the pods, too.
//
// What the simulation leaves out: probes, completing pods, images, logs,
// kubelet events, sums over a node (the mode decides alone), and graceful
// termination: a pod with a grace period is gone at once, or after the time that
// its annotation sim.inplace-rollout.io/termination-time says, and the stage that
// does so can, rarely, delete a pod that was just born under the same name.
// Tests that count pods therefore use terminationGracePeriodSeconds: 0.
package controlplane
