package prerequisite

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/sets"
)

// named finds where an expression names the controller: by one name, or, where single namespaces
// have controllers, by one in the namespace of the request.
var named = regexp.MustCompile(`(request\.userInfo\.username\s*[!=]=\s*)"(system:serviceaccount:(?:[^:"]*|"\s*\+\s*request\.namespace\s*\+\s*"):[^:"]*)"`)

const (
	// requestNamespace stands in such a name for the namespace of the request.
	requestNamespace = `" + request.namespace + "`
	// defaultName is the one that deploy/cluster has.
	defaultName = "system:serviceaccount:inplace-rollout:inplace-rollout"
)

// anonymous returns a spec with the name of deploy/cluster in place of the names by which its
// expressions know the controller, and those.
func anonymous(spec map[string]any) (map[string]any, sets.Set[string]) {
	names := sets.New[string]()
	renamed, _ := rename(spec, names).(map[string]any)
	return renamed, names
}

func rename(value any, names sets.Set[string]) any {
	switch v := value.(type) {
	case string:
		for _, match := range named.FindAllStringSubmatch(v, -1) {
			names.Insert(squeeze(match[2]))
		}
		return named.ReplaceAllString(v, `${1}"`+defaultName+`"`)
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
