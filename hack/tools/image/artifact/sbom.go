package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// noAssertion is SPDX's value for what is not known.
const noAssertion = "NOASSERTION"

// sbom lists in SPDX which Go modules programs were compiled from.
type sbom struct {
	packages      map[spdx.ElementID]*spdx.Package
	relationships []*spdx.Relationship
}

func newSBOM() *sbom { return &sbom{packages: map[spdx.ElementID]*spdx.Package{}} }

// add adds what a program is in, and what the compiler has noted in the program.
func (s *sbom) add(holder *spdx.Package, p *Program) error {
	id := holder.PackageSPDXIdentifier
	s.packages[id] = holder
	for _, m := range p.modules() {
		declared := p.licenses[m.Path].declared
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

// write writes the document. Its time is that of the sources, so that the same sources give the
// same bytes; its namespace names what it describes, with the digest.
func (s *sbom) write(file, title, namespace string, created time.Time) error {
	if created.IsZero() {
		created = time.Unix(0, 0).UTC()
	}
	document := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      title,
		DocumentNamespace: "https://spdx.org/spdxdocs/" + namespace,
		CreationInfo: &spdx.CreationInfo{
			Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "inplace-rollout-image"}},
			Created:  created.Format(time.RFC3339),
		},
		Relationships: s.relationships,
	}
	for _, id := range slices.Sorted(maps.Keys(s.packages)) {
		document.Packages = append(document.Packages, s.packages[id])
	}
	var out bytes.Buffer
	if err := json.Write(document, &out, json.Indent("  ")); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	return nil
}

// WriteSBOM writes what is in the image.
func (i *Image) WriteSBOM(file string) error {
	s := newSBOM()
	all := imagePackage("Image", i.tag, i.Digest, "")
	s.packages[all.PackageSPDXIdentifier] = all
	s.relate("DOCUMENT", common.TypeRelationshipDescribe, all.PackageSPDXIdentifier)
	for n, p := range i.programs {
		digest, err := i.images[n].Digest()
		if err != nil {
			return fmt.Errorf("computing the image's digest: %w", err)
		}
		image := imagePackage(idOf("Image-"+p.Platform.String()), i.tag, digest, p.Platform.Architecture)
		if err := s.add(image, p); err != nil {
			return fmt.Errorf("describing the image for %s: %w", p.Platform, err)
		}
		s.relate(image.PackageSPDXIdentifier, common.TypeRelationshipVariantOf, all.PackageSPDXIdentifier)
	}
	return s.write(file, i.tag.String(), path.Base(i.tag.RepositoryStr())+"-"+i.Digest.Hex, i.programs[0].Source.Time)
}

// WriteArchivesSBOM writes what is in archives, by their names, each of which holds one program.
func WriteArchivesSBOM(file, title string, archives map[string][]byte, of map[string]*Program) error {
	s, all, created := newSBOM(), sha256.New(), time.Time{}
	for _, name := range slices.Sorted(maps.Keys(archives)) {
		p, sum := of[name], sha256.Sum256(archives[name])
		all.Write(sum[:])
		created = p.Source.Time
		purl := packageurl.NewPackageURL(packageurl.TypeGeneric, "", name, p.Source.Version, nil, "")
		archive := newPackage(idOf("Archive-"+p.Platform.String()), name, p.Source.Version, purl)
		archive.PackageFileName = name
		archive.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: hex.EncodeToString(sum[:])}}
		archive.PrimaryPackagePurpose = "ARCHIVE"
		if err := s.add(archive, p); err != nil {
			return fmt.Errorf("describing %s: %w", name, err)
		}
		s.relate("DOCUMENT", common.TypeRelationshipDescribe, archive.PackageSPDXIdentifier)
	}
	return s.write(file, title, fmt.Sprintf("%s-%x", path.Base(title), all.Sum(nil)), created)
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
