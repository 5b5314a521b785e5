package hash_test

import (
	"bytes"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/pkg/hash"
)

// newTemplates returns a template as it is stored, one of another size, and one of another image.
func newTemplates(b *testing.B) (stored, resized, edited *hash.Template) {
	b.Helper()
	raw := fromFile(b, "testdata/persisted-1.37.yaml")
	for _, t := range []struct {
		into *(*hash.Template)
		raw  []byte
	}{
		{&stored, raw},
		{&resized, bytes.Replace(raw, []byte(`"memory":"`), []byte(`"memory":"1`), 1)},
		{&edited, bytes.ReplaceAll(raw, []byte(`"image":"`), []byte(`"image":"other/`))},
	} {
		var err error
		if *t.into, err = hash.NewTemplate(t.raw); err != nil {
			b.Fatal(err)
		}
	}
	return stored, resized, edited
}

func BenchmarkNewTemplate(b *testing.B) {
	raw := fromFile(b, "testdata/persisted-1.37.yaml")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := hash.NewTemplate(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSame(b *testing.B) {
	stored, resized, _ := newTemplates(b)
	again, _, _ := newTemplates(b)
	b.Run("same", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !stored.Same(again) {
				b.Fatal("a template differs from itself")
			}
		}
	})
	b.Run("resized", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if stored.Same(resized) {
				b.Fatal("templates of two sizes are the same")
			}
		}
	})
}

func BenchmarkDiffers(b *testing.B) {
	stored, _, edited := newTemplates(b)
	b.ReportAllocs()
	for b.Loop() {
		if stored.Differs(edited) == "" {
			b.Fatal("a template of another image does not differ")
		}
	}
}
