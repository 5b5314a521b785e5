package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// writeProvenance writes from what the files of the release were made, as in-toto's statement with
// SLSA's predicate. Nobody has signed it: it says what was done, and proves nothing by itself.
func (r *release) writeProvenance() error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}
	parameters, err := structpb.NewStruct(object{"version": r.version, "image": r.image, "url": r.url, "platforms": r.platforms})
	if err != nil {
		return fmt.Errorf("describing the build: %w", err)
	}
	materials, err := r.materials()
	if err != nil {
		return err
	}
	home := "https://" + r.programs[0].Module()
	made := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType:            home + "/CONTRIBUTING.md",
			ExternalParameters:   parameters,
			ResolvedDependencies: materials,
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: home + "/hack/tools/image/release"}},
	}
	predicate := &structpb.Struct{}
	if text, err := protojson.Marshal(made); err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	} else if err := protojson.Unmarshal(text, predicate); err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	statement := &intoto.Statement{
		Type: intoto.StatementTypeUri, Subject: subjects,
		PredicateType: "https://slsa.dev/provenance/v1", Predicate: predicate,
	}
	if err := errors.Join(made.Validate(), statement.Validate()); err != nil {
		return fmt.Errorf("checking the provenance: %w", err)
	}
	text, err := protojson.Marshal(statement)
	if err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	// protojson sets blanks as it likes.
	var compact, out bytes.Buffer
	if err := errors.Join(json.Compact(&compact, text), json.Indent(&out, compact.Bytes(), "", "  ")); err != nil {
		return fmt.Errorf("encoding the provenance: %w", err)
	}
	return r.writeFile("provenance.intoto.json", append(out.Bytes(), '\n'))
}

// subjects are all files of the release, and the image.
func (r *release) subjects() ([]*intoto.ResourceDescriptor, error) {
	sums, err := r.files()
	if err != nil {
		return nil, err
	}
	subjects := []*intoto.ResourceDescriptor{{Name: r.image, Digest: map[string]string{"sha256": r.digest.Hex}}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sums[name]}})
	}
	return subjects, nil
}

// materials are the commit, the toolchain, and the modules of others.
func (r *release) materials() ([]*intoto.ResourceDescriptor, error) {
	materials := []*intoto.ResourceDescriptor{
		{Uri: "git+https://" + r.programs[0].Module(), Digest: map[string]string{"gitCommit": strings.TrimSuffix(r.source.Commit, "-dirty")}},
		{Uri: "pkg:golang/stdlib@" + strings.TrimPrefix(r.programs[0].GoVersion(), "go")},
	}
	modules := map[string]*debug.Module{}
	for _, p := range r.programs {
		for _, m := range p.Dependencies() {
			modules["pkg:golang/"+m.Path+"@"+m.Version] = m
		}
	}
	for _, uri := range slices.Sorted(maps.Keys(modules)) {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(modules[uri].Sum, "h1:"))
		if err != nil {
			return nil, fmt.Errorf("reading the sum of %s: %w", uri, err)
		}
		materials = append(materials, &intoto.ResourceDescriptor{Uri: uri, Digest: map[string]string{"dirHash": hex.EncodeToString(sum)}})
	}
	return materials, nil
}
