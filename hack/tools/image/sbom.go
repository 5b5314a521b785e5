package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// noAssertion is SPDX's value for what is not known.
const noAssertion = "NOASSERTION"

// sbom lists in SPDX which Go modules the program of each platform was compiled from.
type sbom struct {
	packages      map[spdx.ElementID]*spdx.Package
	relationships []*spdx.Relationship
	platforms     []spdx.ElementID
}

func newSBOM() *sbom { return &sbom{packages: map[spdx.ElementID]*spdx.Package{}} }

// addPlatform adds the image of one platform, and what the compiler has noted in its program.
func (s *sbom) addPlatform(tag name.Tag, p v1.Platform, image v1.Image, program []byte, of map[string]licenses) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading the program's build info: %w", err)
	}
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("computing the image's digest: %w", err)
	}
	id := idOf("Image-" + p.OS + "-" + p.Architecture)
	s.packages[id] = imagePackage(id, tag, digest, p.Architecture)
	s.platforms = append(s.platforms, id)
	// The version of the toolchain is also that of the standard library.
	modules := []*debug.Module{&info.Main, {Path: standardLibrary, Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range append(modules, info.Deps...) {
		declared := of[m.Path].declared
		m = inForce(m)
		module := modulePackage(m)
		if declared != "" {
			module.PackageLicenseDeclared = declared
		}
		if same := s.packages[module.PackageSPDXIdentifier]; same != nil && same.PackageName != m.Path {
			return fmt.Errorf("modules %s and %s have the same identifier", same.PackageName, m.Path)
		}
		s.packages[module.PackageSPDXIdentifier] = module
		s.relate(id, common.TypeRelationshipContains, module.PackageSPDXIdentifier)
	}
	return nil
}

func (s *sbom) relate(a spdx.ElementID, relationship string, b spdx.ElementID) {
	s.relationships = append(s.relationships, &spdx.Relationship{
		RefA: spdx.DocElementID{ElementRefID: a}, Relationship: relationship, RefB: spdx.DocElementID{ElementRefID: b},
	})
}

// write writes the document about the image that all platforms make up. It has no
// time of its own, so that the same sources give the same bytes.
func (s *sbom) write(file string, tag name.Tag, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest of all platforms: %w", err)
	}
	image := idOf("Image")
	s.packages[image] = imagePackage(image, tag, digest, "")
	s.relate("DOCUMENT", common.TypeRelationshipDescribe, image)
	for _, platform := range s.platforms {
		s.relate(platform, common.TypeRelationshipVariantOf, image)
	}
	document := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      tag.String(),
		DocumentNamespace: "https://spdx.org/spdxdocs/" + path.Base(tag.RepositoryStr()) + "-" + digest.Hex,
		CreationInfo: &spdx.CreationInfo{
			Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "inplace-rollout-image"}},
			Created:  "1970-01-01T00:00:00Z",
		},
		Relationships: s.relationships,
	}
	for _, p := range s.packages {
		document.Packages = append(document.Packages, p)
	}
	slices.SortFunc(document.Packages, func(a, b *spdx.Package) int {
		return strings.Compare(string(a.PackageSPDXIdentifier), string(b.PackageSPDXIdentifier))
	})
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("creating the SBOM: %w", err)
	}
	defer func() { _ = out.Close() }()
	if err := json.Write(document, out, json.Indent("  ")); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	return nil
}

// imagePackage is an image of one platform, or of all.
func imagePackage(id spdx.ElementID, tag name.Tag, digest v1.Hash, architecture string) *spdx.Package {
	base := path.Base(tag.RepositoryStr())
	qualifiers := map[string]string{"tag": tag.TagStr()}
	if architecture != "" {
		qualifiers["arch"] = architecture
	}
	purl := packageurl.NewPackageURL(packageurl.TypeOCI, "", base, digest.String(), packageurl.QualifiersFromMap(qualifiers), "")
	p := newPackage(id, tag.String(), digest.String(), purl)
	p.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: digest.Hex}}
	p.PrimaryPackagePurpose = "CONTAINER"
	return p
}

// inForce is the module that was compiled in.
func inForce(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

func modulePackage(m *debug.Module) *spdx.Package {
	purl := packageurl.NewPackageURL(packageurl.TypeGolang, path.Dir(m.Path), path.Base(m.Path), m.Version, nil, "")
	if !strings.Contains(m.Path, "/") {
		purl.Namespace = ""
	}
	p := newPackage(idOf("Module-"+m.Path+"-"+m.Version), m.Path, m.Version, purl)
	if m.Sum != "" {
		p.PackageSourceInfo = "go.sum: " + m.Sum
	}
	return p
}

func newPackage(id spdx.ElementID, name, version string, purl *packageurl.PackageURL) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             name,
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl.ToString(),
		}},
	}
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

// idOf makes an identifier of the characters that SPDX allows.
func idOf(text string) spdx.ElementID {
	return spdx.ElementID(strings.Trim(notInID.ReplaceAllString(text, "-"), "-"))
}
