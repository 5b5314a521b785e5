// Package policy decides what may be done to bring a pod to its new size: resize it
// live, restart it, or leave it as it is. Three questions, one file each: what do the
// annotations of the workload say ([Read]); what does that mean for this edit
// ([Settings.Resolve]); and what follows for one pod ([Decide], the table)?
//
// Policy, action and table are those of the vertical scaling proposal of 2017; a
// policy per direction is future work of KEP-1287. Everything here is pure.
package policy
