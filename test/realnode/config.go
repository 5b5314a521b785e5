package realnode

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The node's own network. The same on every node, because no two see each other.
const (
	nodeAddress = "192.0.2.1"
	bridge      = "pods"
	podSubnet   = "10.244.0.0/24"
)

// containerdConfig leaves out what the node does not need, and what needs rights
// that root may lack in a virtual machine or a container.
const containerdConfig = `version = 4
root = '%[1]s/containerd'
state = '/run/containerd'
imports = []
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.snapshotter.v1.blockfile', 'io.containerd.snapshotter.v1.erofs',
  'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing']
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '%[3]s'
[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true
  restrict_oom_score_adj = true
  enable_unprivileged_ports = false
  enable_unprivileged_icmp = false
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '%[2]s/runc'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%[2]s']
  conf_dir = '%[4]s'
[plugins.'io.containerd.server.v1.grpc']
  address = '` + containerdSocket + `'
[plugins.'io.containerd.server.v1.ttrpc']
  address = '` + containerdSocket + `.ttrpc'
`

const containerdSocket = "/run/containerd/containerd.sock"

const cniConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": %q, "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// KubeletConfig is a KubeletConfiguration, as it is written.
type KubeletConfig map[string]any

// kubeletConfig is how the kubelet is started if nothing else is said. It listens
// in the node's own network only, where nobody but the API server and pods are. The
// API server does not say who it is; whoever does is asked for a token that is good.
func (n *Node) kubeletConfig() KubeletConfig {
	return KubeletConfig{
		"apiVersion":                  "kubelet.config.k8s.io/v1beta1",
		"kind":                        "KubeletConfiguration",
		"address":                     nodeAddress,
		"healthzBindAddress":          "127.0.0.1",
		"authentication":              map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": true}},
		"authorization":               map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":                false,
		"failSwapOn":                  false,
		"cgroupDriver":                "cgroupfs",
		"cgroupRoot":                  "/" + n.name,
		"containerRuntimeEndpoint":    "unix://" + containerdSocket,
		"resolvConf":                  n.path("resolv.conf"),
		"makeIPTablesUtilChains":      false,
		"imageGCHighThresholdPercent": 100,
		"evictionHard": map[string]any{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		"podLogsDir":                n.path("log/pods"),
		"nodeStatusUpdateFrequency": "10s",
	}
}

// configure writes what containerd and the CNI plugins read.
func (n *Node) configure() error {
	for name, content := range map[string]string{
		"containerd.toml":      fmt.Sprintf(containerdConfig, n.path("state"), n.bin("node"), pauseImage, n.path("cni")),
		"cni/10-pods.conflist": fmt.Sprintf(cniConfig, bridge, podSubnet),
		"resolv.conf":          "nameserver 127.0.0.1\n",
	} {
		if err := os.WriteFile(n.path(name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return nil
}

// writeKubeletConfig writes what the kubelet reads, with changes.
func (n *Node) writeKubeletConfig(changes []func(KubeletConfig)) error {
	config := n.kubeletConfig()
	for _, change := range changes {
		change(config)
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	if err := os.WriteFile(n.path("kubelet.yaml"), data, 0o644); err != nil {
		return fmt.Errorf("writing the kubelet's configuration: %w", err)
	}
	return nil
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }
func (n *Node) bin(elements ...string) string {
	return filepath.Join(append([]string{n.options.Bin}, elements...)...)
}
