// Package cell lists the cells of test/matrix, which test/all runs, too.
package cell

// Newest is the version of bin/k8s, which needs no name.
const Newest = "1.37"

// Cell is a control plane with a way of holding rollouts, or with a kubelet: what the tests run on.
type Cell struct {
	Version, Hold string
	Kubelet       string // simulated ones if empty
	Narrowed      bool   // the namespaceSelector of the webhooks, as by AKS
}

// All are all that are tested, the one of the gate first. Kubelets may be three minor versions older than the API server.
var All = []Cell{
	{Version: "1.37", Hold: "policy"},
	{Version: "1.37", Hold: "webhook"},
	{Version: "1.36", Hold: "policy"},
	{Version: "1.36", Hold: "webhook"},
	{Version: "1.35", Hold: "webhook"},
	{Version: "1.35", Hold: "webhook", Narrowed: true},
	{Version: "1.34", Hold: "webhook"},
	{Version: "1.36", Kubelet: "1.36"},
	{Version: "1.35", Kubelet: "1.35"},
	{Version: "1.34", Kubelet: "1.34"},
	{Version: "1.37", Kubelet: "1.36"},
	{Version: "1.37", Kubelet: "1.35"},
	{Version: "1.37", Kubelet: "1.34"},
}

// Name is what --only says, and the table.
func (c Cell) Name() string {
	if c.Kubelet != "" {
		return c.Version + "/kubelet-" + c.Kubelet
	}
	if c.Narrowed {
		return c.Version + "/" + c.Hold + "-narrowed"
	}
	return c.Version + "/" + c.Hold
}
