package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/inplace-rollout/inplace-rollout/test/build"
)

//go:embed stages/*.yaml audit-policy.yaml
var embedded embed.FS

// user is one of those whom the API server knows by a token.
type user struct{ file, name, group string }

var users = []user{
	{"kubeconfig", "admin", "system:masters"},
	{"kube-controller-manager.kubeconfig", "system:kube-controller-manager", ""},
	{"kube-scheduler.kubeconfig", "system:kube-scheduler", ""},
	{"kwok.kubeconfig", "system:kwok", "system:masters"},
}

// users are all whom this API server knows.
func (c *ControlPlane) users() []user {
	kubelets := build.Each(c.options.Kubelets, func(node string) user { return user{kubeletFile(node), "system:node:" + node, kubeletGroup} })
	return slices.Concat(users, kubelets)
}

const kubeletGroup = "system:nodes"

func kubeletFile(node string) string { return "kubelet-" + node + ".kubeconfig" }

// egress sends everything that goes from the API server to nodes and pods through a socket.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: %q}}
`

// ports are those that the processes listen on.
type ports struct{ apiserver, etcd, etcdPeer string }

// freePorts returns ports for the processes.
func freePorts() (ports, error) {
	var p ports
	for _, port := range []*string{&p.apiserver, &p.etcd, &p.etcdPeer} {
		var err error
		if *port, err = FreePort(); err != nil {
			return ports{}, err
		}
	}
	return p, nil
}

// configure writes everything that the processes read into the folder.
func (c *ControlPlane) configure() error {
	for _, sub := range []string{"log", "kubeconfigs"} {
		if err := os.MkdirAll(c.path(sub), 0o755); err != nil {
			return fmt.Errorf("making folder: %w", err)
		}
	}
	if err := os.CopyFS(c.dir, embedded); err != nil {
		return fmt.Errorf("writing embedded files: %w", err)
	}

	saKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("making service account key: %w", err)
	}
	ip := net.IPv4(127, 0, 0, 1)
	crt, key, err := cert.GenerateSelfSignedCertKey(ip.String(), []net.IP{ip, net.ParseIP(ServiceAddress)}, []string{"localhost", "kubernetes.default.svc"})
	if err != nil {
		return fmt.Errorf("making certificate: %w", err)
	}

	c.config = &rest.Config{Host: "https://127.0.0.1:" + c.ports.apiserver, QPS: -1}
	c.config.CAData = crt
	var tokens strings.Builder
	for _, u := range c.users() {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", token, u.name, u.name, u.group)
		server := c.config.Host
		if u.group == kubeletGroup {
			server = "https://" + ServiceAddress
		}
		if err := c.writeKubeconfig(c.path(u.file), server, token); err != nil {
			return err
		}
		if u.name == "admin" {
			c.config.BearerToken = token
		}
	}
	for name, data := range map[string][]byte{
		"sa.key": saKey, "apiserver.key": key, "apiserver.crt": crt, "tokens.csv": []byte(tokens.String()),
		"egress.yaml": fmt.Appendf(nil, egress, c.options.Egress),
	} {
		if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
			return fmt.Errorf("writing configuration: %w", err)
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig for the bearer of token.
func (c *ControlPlane) writeKubeconfig(path, server, token string) error {
	const name = "controlplane"
	cluster := &clientcmdapi.Cluster{Server: server}
	if strings.HasPrefix(server, "https:") {
		cluster.CertificateAuthorityData = c.config.CAData
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = cluster
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}

// Certificate is the API server's own, for a proxy on 127.0.0.1 that clients take for it.
func (c *ControlPlane) Certificate() (tls.Certificate, error) {
	certificate, err := tls.LoadX509KeyPair(c.path("apiserver.crt"), c.path("apiserver.key"))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("loading the API server's certificate: %w", err)
	}
	return certificate, nil
}

// ServiceAccountKubeconfig writes a kubeconfig with a token for the service
// account that is good for one day, and returns its path. A server that is not
// empty replaces the API server's URL, for a proxy in between.
func (c *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name, server string) (string, error) {
	day := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}
	answer, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting token for service account %s/%s: %w", namespace, name, err)
	}
	file, err := os.CreateTemp(c.path("kubeconfigs"), namespace+"-"+name+"-*")
	if err != nil {
		return "", fmt.Errorf("creating kubeconfig: %w", err)
	}
	defer func() { _ = file.Close() }()
	if server == "" {
		server = c.config.Host
	}
	return file.Name(), c.writeKubeconfig(file.Name(), server, answer.Status.Token)
}

// flags are the command lines of the processes.
func (c *ControlPlane) flags() (map[string][]string, error) {
	stages, err := fs.Glob(embedded, "stages/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing stages: %w", err)
	}
	etcd, peer := "http://127.0.0.1:"+c.ports.etcd, "http://127.0.0.1:"+c.ports.etcdPeer
	controllers := "*,-node-ipam-controller"
	if !c.options.TypeChecking {
		controllers += ",-validatingadmissionpolicy-status-controller"
	}
	flags := map[string][]string{
		"etcd": {
			"--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--logger", "zap", "--election-timeout", "500",
			"--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		},
		"kube-apiserver": c.apiserverFlags(etcd),
		"kube-controller-manager": {
			"--kubeconfig", c.path("kube-controller-manager.kubeconfig"), "--use-service-account-credentials",
			"--service-account-private-key-file", c.path("sa.key"), "--root-ca-file", c.path("apiserver.crt"), "--controllers", controllers,
			"--secure-port", "0", "--leader-elect=false", "--kube-api-qps", "200", "--kube-api-burst", "400",
		},
		"kube-scheduler": {
			"--kubeconfig", c.path("kube-scheduler.kubeconfig"), "--secure-port", "0", "--leader-elect=false",
		},
		"kwok": {
			"--kubeconfig", c.path("kwok.kubeconfig"), "--manage-nodes-with-annotation-selector", nodeAnnotation + "=fake",
			"--node-lease-duration-seconds", "40",
		},
	}
	for _, stage := range stages {
		flags["kwok"] = append(flags["kwok"], "--config", c.path(stage))
	}
	for name, more := range c.options.Flags {
		flags[name] = append(flags[name], more...)
	}
	return flags, nil
}

func (c *ControlPlane) apiserverFlags(etcd string) []string {
	flags := []string{
		"--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--secure-port", c.ports.apiserver, "--endpoint-reconciler-type", "none",
		"--tls-cert-file", c.path("apiserver.crt"), "--tls-private-key-file", c.path("apiserver.key"),
		"--token-auth-file", c.path("tokens.csv"), "--authorization-mode", "RBAC",
		// Not on by default, but some distributions have it on: it asks for more rights to set owners.
		"--enable-admission-plugins", "OwnerReferencesPermissionEnforcement",
		"--service-account-key-file", c.path("sa.key"), "--service-account-signing-key-file", c.path("sa.key"),
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.96.0.0/16",
		"--audit-policy-file", c.path("audit-policy.yaml"), "--audit-log-path", c.auditLog(),
		"--audit-log-mode", "blocking", "--audit-log-maxsize", "100000",
	}
	if len(c.options.Kubelets) > 0 {
		flags = append(flags, "--authorization-mode", "Node", "--enable-admission-plugins", "NodeRestriction",
			"--allow-privileged", "--kubelet-preferred-address-types", "InternalIP")
	}
	if c.options.Egress != "" {
		flags = append(flags, "--egress-selector-config-file", c.path("egress.yaml"))
	}
	return flags
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }
func (c *ControlPlane) auditLog() string        { return c.path("log/audit.jsonl") }

// versionEnvironment names the version where Options do not: a minor version that hack/tools/ pins, such as 1.35.
const versionEnvironment = "KUBERNETES"

// versioned are the binaries of which each version has its own. An older API server works with the
// newest etcd, kwok and kubectl.
var versioned = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// BinaryOf is the path of a binary of a version in the folders beside bin, such as bin/k8s-1.35 beside
// bin/k8s. An empty version is the newest, which is in bin itself.
func BinaryOf(bin, version, name string) string {
	if version != "" && slices.Contains(versioned, name) {
		bin += "-" + version
	}
	return filepath.Join(bin, name)
}

// versionOr returns the given version, or else that of the environment.
func versionOr(given string) string {
	if given != "" {
		return given
	}
	return os.Getenv(versionEnvironment)
}

// AtLeast reports whether the API server is of a minor version, such as 1.36, or a later one.
func (c *ControlPlane) AtLeast(minor string) bool {
	runs, err := version.ParseGeneric(c.version)
	if err != nil {
		panic(fmt.Sprintf("the API server says that its version is %q: %v", c.version, err))
	}
	return runs.AtLeast(version.MustParseGeneric(minor))
}

// RunTests runs the tests of a package on a control plane that they share, once setUp has made it
// ready, and returns the exit code. TearDown ends what setUp has started; it may be nil, and is
// called after an error, too. If anything fails, the logs stay.
func RunTests(tests interface{ Run() int }, o Options, setUp func(context.Context, *ControlPlane) (tearDown func(), err error)) (code int) {
	failed := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cp, err := Start(ctx, o)
	if err != nil {
		failed(err)
		return code
	}
	defer func() {
		if code != 0 {
			cp.KeepLogs()
		}
		failed(cp.Stop())
	}()
	tearDown, err := setUp(ctx, cp)
	if tearDown != nil {
		defer tearDown()
	}
	if err != nil {
		failed(err)
		return code
	}
	return tests.Run()
}
