package estimate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestDefaults: what is said of an image counts where no rung has anything, for each resource by itself.
func TestDefaults(t *testing.T) {
	l := Default()
	l.Defaults = must.Get(ParseDefaults([]byte("mysql: {cpu: '0.25', memory: 512Mi}\nregistry.example:5000/own/app: {memory: 1Gi}\n")))(t)
	mysql := Image{Name: "docker.io/library/mysql", Version: "9"}
	key := Key{Namespace: "shop", Image: mysql}
	known := only{key: key, resource: corev1.ResourceCPU}
	data, leftOut := l.Table(known, []Key{key}, Bounds{}, time.Now())
	for entry, want := range map[string]string{
		"docker.io-_library-_mysql_-9.cpu":        `100m {"request":"100m","from":"image:tag","window":"7d","percentile":90,"samples":60,"scope":"namespace"}`,
		"docker.io-_library-_mysql.cpu":           `100m {"request":"100m","from":"image",`,
		"docker.io-_library-_mysql.memory":        `512Mi {"request":"512Mi","from":"default","samples":0,"scope":""}`,
		"registry.example_-5000-_own-_app.memory": `1Gi {"request":"1Gi","from":"default"`,
	} {
		if entry != "docker.io-_library-_mysql.cpu" && !strings.HasPrefix(data[entry], want) || entry == "docker.io-_library-_mysql.cpu" && strings.Contains(data[entry], "default") {
			t.Errorf("%s is %s, want %s", entry, data[entry], want)
		}
	}
	if leftOut > 0 || data["registry.example_-5000-_own-_app.cpu"] != "" {
		t.Errorf("%d are left out of %v", leftOut, data)
	}
	if e, known := l.Estimate(known, Key{Namespace: "shop", Image: Image{Name: "docker.io/library/mysql", Version: "8"}}, corev1.ResourceMemory, time.Now()); !known || e.Request.String() != "512Mi" {
		t.Errorf("of another version: %v, %v", e, known)
	}

	for text, want := range map[string]string{
		"mysql:9: {cpu: 1}":      "mysql:9 has a tag",
		"mysql:latest: {cpu: 1}": "mysql:latest has a tag",
		"mysql: {gpu: 1}":        "mysql: gpu is 1: want cpu or memory",
		"mysql: {cpu: 0}":        "mysql: cpu is 0",
		"mysql: 5":               "want images with their requests",
		"MySQL: {cpu: 1}":        "is not the name of an image",
		"mysql: {cpu: 1}\ndocker.io/mysql: {cpu: 1}": "docker.io/library/mysql is listed twice",
	} {
		_, err := ParseDefaults([]byte(text))
		must.Fails(t, text, err, want)
	}
}

// only is a source with an hour of one resource of one image.
type only struct {
	key      Key
	resource corev1.ResourceName
}

func (o only) Samples(_ time.Time, of Key, resource corev1.ResourceName) Samples {
	if resource != o.resource || !of.Matches(o.key) {
		return nil
	}
	return hour{}
}

type hour struct{ none }

func (hour) Count() float64           { return 60 }
func (hour) Quantile(float64) float64 { return 0.1 }
