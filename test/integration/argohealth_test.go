//go:build integration || around

package integration

import (
	"encoding/json"
	"os"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// health is what Argo CD makes of an object with the check in deploy/argocd. It
// runs the script as Argo CD does: the object is the global obj, only the libraries
// package, base and table are there, and a table comes back.
func health(t *testing.T, kind string, object any) (status, message string) {
	t.Helper()
	data := must.Get(os.ReadFile(shipped("deploy", "argocd", "argocd-cm.yaml")))(t)
	var config struct{ Data map[string]string }
	must.Do(t, yaml.UnmarshalStrict(data, &config))
	data = must.Get(json.Marshal(object))(t)
	var fields map[string]any
	must.Do(t, json.Unmarshal(data, &fields))

	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		must.Do(t, l.CallByParam(lua.P{Fn: l.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	l.SetGlobal("obj", toLua(l, fields))
	must.Do(t, l.DoString(config.Data["resource.customizations.health.apps_"+kind]))
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the check of %s answers %v", kind, l.Get(-1))
	}
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
}

func toLua(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case bool:
		return lua.LBool(v)
	case float64:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(toLua(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, toLua(l, item))
		}
		return table
	default:
		return lua.LNil
	}
}
