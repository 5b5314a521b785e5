package prerequisite

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/inplace-rollout/inplace-rollout/deploy"
)

// named finds where an expression names the controller: by one name, or, where single namespaces
// have controllers, by one in the namespace of the request.
var named = regexp.MustCompile(`"(system:serviceaccount:(?:[^:"]*|"\s*\+\s*request\.namespace\s*\+\s*"):[^:"]*)"`)

// requestNamespace stands in such a name for the namespace of the request.
const requestNamespace = `" + request.namespace + "`

// critical finds a list of critical namespaces; an installation may name more than deploy/cluster does, which names
// the standard one.
var critical = regexp.MustCompile(`^\s*\["kube-system"(?:,\s*"[a-z0-9-]+")*\]\s*$`)

const standard = `["kube-system"]`

// anonymous returns a spec with the name of deploy/cluster in place of the names by which its
// expressions know the controller, and those; and without what an installation may say for itself.
func anonymous(spec map[string]any) (map[string]any, sets.Set[string]) {
	names := sets.New[string]()
	renamed, _ := rename(spec, names).(map[string]any)
	return renamed, names
}

func rename(value any, names sets.Set[string]) any {
	switch v := value.(type) {
	case string:
		if !strings.Contains(v, `"`) { // it names nobody
			return v
		}
		for _, match := range named.FindAllStringSubmatch(v, -1) {
			names.Insert(squeeze(match[1]))
		}
		return critical.ReplaceAllString(named.ReplaceAllString(v, `"`+deploy.User+`"`), standard)
	case []any:
		renamed := make([]any, len(v))
		for i, each := range v {
			renamed[i] = rename(each, names)
		}
		return renamed
	case map[string]any:
		renamed := make(map[string]any, len(v))
		for key, each := range v {
			renamed[key] = rename(each, names)
		}
		return renamed
	}
	return value
}

// anonymousBinding does the same for the spec of a binding whose parameter is the heartbeat: that is in the namespace of the controller,
// which its policy knows by these names.
func anonymousBinding(spec, want map[string]any, names sets.Set[string]) (map[string]any, sets.Set[string]) {
	ref, is := spec["paramRef"].(map[string]any)
	should, wants := want["paramRef"].(map[string]any)
	if _, ours := should["namespace"]; !is || !wants || !ours {
		return spec, names
	}
	namespace, is := ref["namespace"]
	if !is {
		namespace = requestNamespace
	}
	all := names.Clone()
	for name := range names {
		all.Insert(fmt.Sprintf("system:serviceaccount:%v%s", namespace, name[strings.LastIndex(name, ":"):]))
	}
	spec, ref = maps.Clone(spec), maps.Clone(ref)
	ref["namespace"] = should["namespace"]
	spec["paramRef"] = ref
	return spec, all
}
