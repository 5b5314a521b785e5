// Command image builds a container image that holds one static Go program, the
// licenses of what it was compiled from, and nothing else, and writes it as an OCI image layout in a tar file, which
// `ctr images import`, `kind load image-archive` and `docker load` read:
//
//	image --package ./cmd/inplace-rollout --name inplace-rollout:dev --output bin/images/inplace-rollout.tar
//
// Beside it, in bin/images/inplace-rollout.spdx.json, it writes an SBOM. That is not a
// referrer in the layout, because tools that load every manifest of a layout as an
// image would fail at it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/inplace-rollout/inplace-rollout/hack/tools/image/artifact"
)

type options struct {
	pkg, name, output, platforms, user, version string
}

func main() {
	var o options
	flag.StringVar(&o.pkg, "package", "", "the program's package")
	flag.StringVar(&o.name, "name", "", "name and tag of the image")
	flag.StringVar(&o.output, "output", "", "the tar file to write")
	flag.StringVar(&o.platforms, "platforms", "linux/amd64,linux/arm64", "comma-separated platforms to build for")
	flag.StringVar(&o.user, "user", "65532:65532", "user and group to run as")
	flag.StringVar(&o.version, "version", "", "version of the program; empty means that nothing says which version and commit it is")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var source artifact.Source
	if o.version != "" {
		var err error
		if source, err = artifact.SourceOf(ctx, o.version); err != nil {
			return err
		}
	}
	programs, err := artifact.Compile(ctx, o.pkg, o.platforms, source)
	if err != nil {
		return err
	}
	image, err := artifact.NewImage(o.name, o.user, programs)
	if err != nil {
		return err
	}
	if err := image.Write(o.output); err != nil {
		return err
	}
	return image.WriteSBOM(strings.TrimSuffix(o.output, filepath.Ext(o.output)) + ".spdx.json")
}
