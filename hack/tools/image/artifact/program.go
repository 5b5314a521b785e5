// Package artifact makes what is handed on: programs with the licenses of what they were compiled
// from, container images without Docker and without a base image, archives, and SBOMs. The same
// sources and the same Go version give the same bytes, whatever the environment says.
package artifact

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Program is one that was compiled for a platform.
type Program struct {
	Name     string
	Platform v1.Platform
	Binary   []byte
	Source   Source
	built    *debug.BuildInfo
	licenses map[string]licenses // of each module but its own
}

// Compile compiles a package for each of these comma-separated platforms.
func Compile(ctx context.Context, pkg, platforms string, source Source) ([]*Program, error) {
	var programs []*Program
	for platform := range strings.SplitSeq(platforms, ",") {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return nil, fmt.Errorf("parsing platform %s: %w", platform, err)
		}
		program, err := compile(ctx, pkg, *p, source)
		if err != nil {
			return nil, fmt.Errorf("compiling for %s: %w", platform, err)
		}
		programs = append(programs, program)
	}
	return programs, nil
}

func compile(ctx context.Context, pkg string, platform v1.Platform, source Source) (*Program, error) {
	temporary, err := os.MkdirTemp("", "program-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	binary := filepath.Join(temporary, "program")
	// Make compiles everything else without debuggers' tables: so the build cache has it already. The tag is explained in hack/conntrack.
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-tags=grpcnotrace", "-ldflags", source.ldflags(), "-o", binary, pkg)
	env, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	build.Env = slices.Concat(env, []string{"GOOS=" + platform.OS, "GOARCH=" + platform.Architecture})
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	p := &Program{Name: path.Base(pkg), Platform: platform, Source: source}
	if p.Binary, err = os.ReadFile(binary); err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	if p.built, err = buildinfo.Read(bytes.NewReader(p.Binary)); err != nil {
		return nil, fmt.Errorf("reading the program's build info: %w", err)
	}
	if source.Version != "" {
		p.built.Main.Version = source.Version
	}
	p.licenses, err = licensesOf(ctx, p.built)
	return p, err
}

// modules are what the program was compiled from: its own module, the standard library, which is of
// the toolchain's version, and all others.
func (p *Program) modules() []*debug.Module {
	return append([]*debug.Module{&p.built.Main, {Path: standardLibrary, Version: strings.TrimPrefix(p.built.GoVersion, "go")}}, othersOf(p.built)...)
}

// Dependencies are the modules of others that the program was compiled from.
func (p *Program) Dependencies() []*debug.Module {
	var modules []*debug.Module
	for _, m := range othersOf(p.built) {
		modules = append(modules, inForce(m))
	}
	return modules
}

// GoVersion is that of the toolchain.
func (p *Program) GoVersion() string { return p.built.GoVersion }

// Module is the path of the program's own module.
func (p *Program) Module() string { return p.built.Main.Path }

// Licenses are the texts of all modules, by names such as licenses/example.com/a@v1.0.0/LICENSE.
func (p *Program) Licenses() map[string][]byte {
	texts := map[string][]byte{}
	for _, l := range p.licenses {
		maps.Copy(texts, l.files)
	}
	return texts
}

// othersOf are the modules that a program was compiled from, but for its own, and those in whose place its own source has a folder.
func othersOf(info *debug.BuildInfo) []*debug.Module {
	return slices.DeleteFunc(slices.Clone(info.Deps), func(m *debug.Module) bool { return m.Replace != nil && strings.HasPrefix(m.Replace.Path, ".") })
}

// inForce is the module that was compiled in.
func inForce(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

// environment is the one that programs are compiled in: of this process's own it has only what
// cannot be seen in them, such as where modules are downloaded from.
func environment(ctx context.Context) ([]string, error) {
	env := []string{"CGO_ENABLED=0", "GOENV=off", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}
	kept := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOTOOLCHAIN"}
	settings := exec.CommandContext(ctx, "go", append([]string{"env"}, kept...)...)
	settings.Stderr = os.Stderr
	out, err := settings.Output()
	if err != nil {
		return nil, fmt.Errorf("asking for Go's settings: %w", err)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		env = append(env, kept[i]+"="+value)
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"} {
		if value, is := os.LookupEnv(name); is {
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// output runs a command in the environment of the build.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Stderr = os.Stderr
	env, err := environment(ctx)
	if err != nil {
		return nil, err
	}
	command.Env = env
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w", name, args[0], err)
	}
	return out, nil
}
