package hash

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const container = "spec.containers[]"

var (
	probes    = []string{container + ".livenessProbe", container + ".readinessProbe", container + ".startupProbe"}
	hooks     = []string{container + ".lifecycle.postStart", container + ".lifecycle.preStop"}
	fieldRefs = []string{
		container + ".env[].valueFrom.fieldRef",
		"spec.volumes[].downwardAPI.items[].fieldRef",
		"spec.volumes[].projected.sources[].downwardAPI.items[].fieldRef",
	}
	resourceFieldRefs = []string{
		container + ".env[].valueFrom.resourceFieldRef",
		"spec.volumes[].downwardAPI.items[].resourceFieldRef",
		"spec.volumes[].projected.sources[].downwardAPI.items[].resourceFieldRef",
	}
	volumesWithMode = []string{
		"spec.volumes[].secret",
		"spec.volumes[].configMap",
		"spec.volumes[].downwardAPI",
		"spec.volumes[].projected",
	}
)

// defaults are the values that the API server sets in a pod template where there are none, by their path. What it sets
// only in a Pod is not among them (enableServiceLinks, host ports of the host network, the protocol of an HTTP probe): a
// template has that only if somebody wrote it.
var defaults = byPath([]defaulting{
	// SetDefaults_PodSpec
	{[]string{"spec"}, map[string]any{
		"dnsPolicy":                     "ClusterFirst",
		"restartPolicy":                 "Always",
		"schedulerName":                 "default-scheduler",
		"securityContext":               map[string]any{},
		"terminationGracePeriodSeconds": 30,
	}},
	// not defaulted: what is left of resources that held only cpu and memory
	{[]string{"spec"}, map[string]any{"resources": map[string]any{}}},
	// SetDefaults_Container
	{[]string{container}, map[string]any{
		"terminationMessagePath":   "/dev/termination-log",
		"terminationMessagePolicy": "File",
	}},
	// SetObjectDefaults_PodTemplate
	{[]string{container + ".ports[]"}, map[string]any{"protocol": "TCP"}},
	{[]string{container + ".env[].valueFrom.fileKeyRef"}, map[string]any{"optional": false}},
	{below(probes, ".grpc"), map[string]any{"service": ""}},
	// SetDefaults_Probe
	{probes, map[string]any{"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}},
	// SetDefaults_HTTPGetAction
	{below(probes, ".httpGet"), map[string]any{"path": "/", "scheme": "HTTP"}},
	{below(hooks, ".httpGet"), map[string]any{"path": "/", "scheme": "HTTP"}},
	// SetDefaults_ObjectFieldSelector
	{fieldRefs, map[string]any{"apiVersion": "v1"}},
	// not defaulted: the zero quantity, which is always written
	{resourceFieldRefs, map[string]any{"divisor": "0"}},
	// SetDefaults_SecretVolumeSource, SetDefaults_ConfigMapVolumeSource, SetDefaults_DownwardAPIVolumeSource,
	// SetDefaults_ProjectedVolumeSource
	{volumesWithMode, map[string]any{"defaultMode": 0o644}},
	// SetDefaults_ServiceAccountTokenProjection
	{[]string{"spec.volumes[].projected.sources[].serviceAccountToken"}, map[string]any{"expirationSeconds": 3600}},
	// SetDefaults_HostPathVolumeSource
	{[]string{"spec.volumes[].hostPath"}, map[string]any{"type": ""}},
	// SetDefaults_PersistentVolumeClaimSpec
	{[]string{"spec.volumes[].ephemeral.volumeClaimTemplate.spec"}, map[string]any{"volumeMode": "Filesystem"}},
	// SetObjectDefaults_PodTemplate
	{[]string{"spec.volumes[].iscsi"}, map[string]any{"iscsiInterface": "default"}},
	{[]string{"spec.volumes[].rbd"}, map[string]any{"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}},
	{[]string{"spec.volumes[].azureDisk"}, map[string]any{
		"cachingMode": "ReadWrite",
		"fsType":      "ext4",
		"kind":        "Shared",
		"readOnly":    false,
	}},
	{[]string{"spec.volumes[].scaleIO"}, map[string]any{"storageMode": "ThinProvisioned", "fsType": "xfs"}},
})

// defaulting is the default values of the objects at some paths.
type defaulting struct {
	at     []string
	values map[string]any
}

func below(paths []string, suffix string) []string {
	var suffixed []string
	for _, path := range paths {
		suffixed = append(suffixed, path+suffix)
	}
	return suffixed
}

func byPath(defaultings []defaulting) map[string]any {
	values := map[string]any{}
	for _, d := range defaultings {
		for _, path := range d.at {
			for key, value := range d.values {
				if number, ok := value.(int); ok {
					value = json.Number(strconv.Itoa(number)) // as decoded
				}
				values[join(path, key)] = value
			}
		}
	}
	return values
}

var (
	quantityType     = reflect.TypeFor[resource.Quantity]()
	resourceListType = reflect.TypeFor[corev1.ResourceList]()
)

// fields are the types of the fields that the API knows in a pod template, by their path.
var fields = fieldsOf("", reflect.TypeFor[corev1.PodTemplateSpec](), map[string]reflect.Type{})

func fieldsOf(path string, t reflect.Type, found map[string]reflect.Type) map[string]reflect.Type {
	switch t.Kind() {
	case reflect.Pointer:
		fieldsOf(path, t.Elem(), found)
	case reflect.Slice:
		fieldsOf(path+"[]", t.Elem(), found)
	case reflect.Struct:
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch {
			case name != "":
				at := join(path, name)
				found[at] = field.Type
				fieldsOf(at, field.Type, found)
			case field.Anonymous:
				fieldsOf(path, field.Type, found)
			}
		}
	}
	return found
}

// heldByValue reports whether the API cannot distinguish a zero value of the field from none. Of a field that our types
// lack, that is not known: it reports false.
func heldByValue(path string) bool {
	t, ok := fields[path]
	return ok && t.Kind() != reflect.Pointer
}
