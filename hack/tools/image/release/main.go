// Command release builds everything of a release, unsigned, from the work tree of the current folder:
//
//	release --version v0.1.0 --output dist
//
// The same commit gives the same bytes, wherever it is built with the same Go and the same Helm.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

type options struct {
	version, image, url, output, platforms, kubectl, helm string
}

func main() {
	var o options
	flag.StringVar(&o.version, "version", "", "the version, such as v0.1.0")
	flag.StringVar(&o.image, "image", "inplace-rollout", "the repository that the image will be in")
	flag.StringVar(&o.url, "url", "", "where the archives of the plugin will be; empty means the releases of the module's own repository")
	flag.StringVar(&o.output, "output", "dist", "the folder to write, which must not be there")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64", "comma-separated platforms of the plugin; the image is for those of linux")
	flag.StringVar(&o.kubectl, "kubectl", "bin/k8s/kubectl", "the kubectl that builds kustomizations")
	flag.StringVar(&o.helm, "helm", "bin/gitops/helm", "the Helm that packages the chart")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Printf("%s is in %s/. Nothing of it is signed.\n", o.version, o.output)
}

func (o options) run(ctx context.Context) (err error) {
	if err := validVersion(o.version); err != nil {
		return err
	}
	source, err := artifact.SourceOf(ctx, o.version)
	if err != nil {
		return err
	}
	if source.Dirty && !strings.HasSuffix(o.version, "-dev") {
		return errors.New("there are changes that are not committed: commit them, or build a version that ends in -dev")
	}
	changelog, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		return fmt.Errorf("reading what has changed: %w", err)
	}
	notes, err := section(string(changelog), o.version)
	if err != nil {
		return err
	}
	programs, err := artifact.Compile(ctx, "./cmd/inplace-rollout", o.platforms, source)
	if err != nil {
		return err
	}
	if err := os.Mkdir(o.output, 0o755); err != nil {
		return fmt.Errorf("making the folder of the release: %w", err)
	}
	// Half a release would look like one.
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(o.output))
		}
	}()
	return (&release{options: o, source: source, programs: programs, notes: notes}).write(ctx)
}

// validVersion refuses what is no version of Go modules, Helm and Krew alike.
func validVersion(version string) error {
	if version == "" {
		return errors.New("which version? Give VERSION, such as VERSION=v0.1.0")
	}
	if semver.Canonical(version) != version {
		return fmt.Errorf("%q is no semantic version as v0.1.0 or v0.1.0-rc.1 is", version)
	}
	return nil
}

// section is what CHANGELOG.md says of a version. One that leads to another, such as v0.1.0-rc.1, may
// have none of its own: then it is that of the other.
func section(changelog, version string) (string, error) {
	release := strings.TrimSuffix(version, semver.Prerelease(version))
	for _, wanted := range []string{version, release} {
		var found strings.Builder
		inside := false
		for line := range strings.Lines(changelog) {
			if title, is := strings.CutPrefix(line, "## "); is {
				words := strings.Fields(title)
				inside = len(words) > 0 && words[0] == wanted
				continue
			}
			if inside {
				found.WriteString(line)
			}
		}
		if text := strings.TrimSpace(found.String()); text != "" {
			return text + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md has no section %q: write there what users get", "## "+release)
}
