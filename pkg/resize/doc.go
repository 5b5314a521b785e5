// Package resize answers, for one pod, the three questions of an in-place
// resize: what must its resources become ([For]), which request carries that to
// the API server ([Target.Patch]), and has the kubelet done it ([Target.Observe])?
//
// It looks at cpu and memory only, of the pod as a whole and of the containers that the
// workload's template names. Everything here is pure.
//
// Other hands than ours change pods. What an edit does with a value that one of them has changed:
//
//	who, when                                         | the value                     | on an edit of it        | on an edit of others
//	admission, at the pod's birth                     | changed                       | the template's [1]      | stays [3]
//	admission, at the pod's birth                     | added                         | the template's          | stays
//	admission, at the pod's birth                     | removed                       | stays away [2]          | stays away
//	admission, at the birth of new pods               | given back, once removed      | what new pods have [4]  | –
//	an injector, at the pod's birth                   | container moved between lists | the template's, there   | stays
//	an injector, at the pod's birth                   | container dropped or renamed  | not the rollout's       | not the rollout's
//	an injector, at the pod's birth                   | container added               | –                       | stays
//	somebody else, by a resize                        | any                           | the template's          | the template's
//	we, by a resize for an edit that was given up     | any                           | the template's          | the template's [5]
//	the kubelet or its runtime, in the status alone   | reported otherwise            | see [Target.Observe]    | no resize is under way
//
// [1] It stays if the pod would change its QoS class otherwise, and admission has decided about that: see edit.
//
// [2] A new pod would lack it, too. Once added, no resize could take it away.
//
// [3] A request that would be above an edited limit becomes the template's, and so does a limit below an edited request.
//
// [4] LimitRanges tell beforehand, and webhooks by the first pod that is made, or that was made for an edit before: see [Admission].
//
// [5] What is in force stays, if that is known of new pods in the same way: the other value was never carried out.
//
// What follows from a resize that is deferred, infeasible or failing is decided in pkg/policy (the table) and
// pkg/judge (when it has been so for too long).
package resize
