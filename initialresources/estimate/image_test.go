package estimate

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/inplace-rollout/inplace-rollout/test/must"
)

// TestImages reads images as people write them. Admission's own tests read the same file.
func TestImages(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/images.yaml"))(t)
	var rows []struct{ Image, Name, Version, Entry, Role string }
	must.Do(t, yaml.UnmarshalStrict(text, &rows))
	for _, r := range rows {
		image, err := ParseImage(r.Image)
		if (err != nil) != (r.Name == "") || image != (Image{Name: r.Name, Version: r.Version}) {
			t.Errorf("ParseImage(%q) is %+v, %v; want %q %q", r.Image, image, err, r.Name, r.Version)
		}
		if err != nil {
			continue
		}
		if entry := (Key{Image: image, Role: r.Role}).Entry(corev1.ResourceCPU); strings.TrimSuffix(entry, ".cpu") != r.Entry {
			t.Errorf("the entry of %q is %q, want %q", r.Image, entry, r.Entry)
		}
		if again, err := ParseImage(image.String()); err != nil || again != image {
			t.Errorf("%q is written as %q, which is %+v, %v", r.Image, image, again, err)
		}
	}
}

// images are references as distribution's grammar has them, but for IPv6, with few letters
// so that much comes twice.
var images = rapid.Custom(func(t *rapid.T) string {
	const component = `[ab]{1,2}((\.|_|__|-{1,3})[ab0]{1,2}){0,2}`
	s := rapid.StringMatching(`([abA](-{0,2}[ab])?(\.[ab])?\.io(:[0-9]{1,2})?/|localhost(:5)?/|docker\.io/(library/)?|a_b\.io/|)`).Draw(t, "domain") +
		rapid.StringMatching(component+`(/`+component+`){0,2}`).Draw(t, "path")
	s += rapid.StringMatching(`(:[ab_][ab_.-]{0,4}|)`).Draw(t, "tag")
	return s + rapid.StringMatching(`(@sha256:[01]{64}|@[ab]([-_.][ab])?:0{32}|)`).Draw(t, "digest")
})

var keys = rapid.Custom(func(t *rapid.T) Key {
	image, err := ParseImage(images.Draw(t, "image"))
	if err != nil {
		t.Skip(err)
	}
	if rapid.Bool().Draw(t, "any version") {
		image = image.AnyVersion()
	}
	return Key{Image: image, Role: rapid.StringMatching(`([ab]([-]{0,2}[ab])?|)`).Draw(t, "role")}
})

// TestEntryTellsApart reads each entry back: what can be read back is not the same for two keys.
func TestEntryTellsApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := keys.Draw(t, "key")
		entry := key.Entry(corev1.ResourceMemory)
		if entry == "" {
			t.Fatalf("no entry for %+v", key)
		}
		if problems := validation.IsConfigMapKey(entry); len(problems) > 0 {
			t.Fatalf("%q: %v", entry, problems)
		}
		if back := read(entry); back != key {
			t.Fatalf("%q is read back as %+v, and was made of %+v", entry, back, key)
		}
	})
}

// read is the inverse of Entry.
func read(entry string) Key {
	entry = strings.TrimSuffix(entry, ".memory")
	domain, rest, _ := strings.Cut(entry, "-_")
	path, separator := rest, ""
	for i := range rest {
		if i+2 <= len(rest) && (rest[i:i+2] == ".." || rest[i:i+2] == "_-" || rest[i:i+2] == "-.") {
			path, separator, rest = rest[:i], rest[i:i+2], rest[i+2:]
			break
		}
	}
	key := Key{Image: Image{Name: strings.Replace(domain, "_-", ":", 1) + "/" + strings.ReplaceAll(path, "-_", "/")}}
	if separator == ".." {
		end := len(rest)
		for _, s := range []string{"_-", "-."} {
			if i := strings.Index(rest, s); i >= 0 && i < end {
				end, separator = i, s
			}
		}
		key.Role, rest = rest[:end], rest[min(len(rest), end+2):]
	}
	switch separator {
	case "_-":
		key.Image.Version = rest
	case "-.":
		key.Image.Version = strings.Replace(rest, "_-", ":", 1)
	}
	return key
}

func TestNoEntry(t *testing.T) {
	long := strings.Repeat("a", 100) + "/" + strings.Repeat("b", 100)
	for name, key := range map[string]Key{
		"too long":                   {Image: Image{Name: "docker.io/" + long, Version: strings.Repeat("c", 100)}},
		"IPv6":                       {Image: Image{Name: "[2001:db8::1]:5000/app", Version: "1"}},
		"a digest of two algorithms": {Image: Image{Name: "docker.io/library/app", Version: "sha256+b64:" + strings.Repeat("0", 32)}},
	} {
		must.Equal(t, key.Entry(corev1.ResourceMemory), "", "the entry of %s", name)
	}
}

func TestMatches(t *testing.T) {
	key := Key{Namespace: "shop", Image: Image{Name: "docker.io/library/nginx", Version: "1.25"}, Role: "web"}
	for _, tt := range []struct {
		question Key
		want     bool
	}{
		{key, true},
		{key.AnyVersion(), true},
		{Key{Image: key.Image}, true},
		{Key{Namespace: "bank", Image: key.Image}, false},
		{Key{Namespace: "shop", Image: Image{Name: key.Image.Name, Version: "1.26"}}, false},
		{Key{Namespace: "shop", Image: Image{Name: "docker.io/library/redis"}}, false},
		{Key{Namespace: "shop", Image: key.Image, Role: "proxy"}, false},
	} {
		must.Equal(t, tt.question.Matches(key), tt.want, "whether %+v matches", tt.question)
	}
}
