//go:build integration

package integration

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// runParts runs the tests that share a controller in one process, and all others beside them in two more, each process
// with a control plane of its own: those others run one by one, and mostly wait. It does so with CONTROL_PLANES=3, if
// no certain tests are asked for; otherwise it returns false.
func runParts() (code int, done bool) {
	flag.Parse()
	if asked := []string{"run", "skip", "list"}; os.Getenv("CONTROL_PLANES") != "3" || slices.ContainsFunc(asked, func(name string) bool {
		return flag.Lookup("test."+name).Value.String() != ""
	}) {
		return 0, false
	}
	selections, err := parts()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	var ended [3]chan error
	var outputs [3]strings.Builder
	for i, selection := range selections {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile") })
		// The first part keeps the processors busy. The others wait, and take the longest: they go first.
		adjustment := "0"
		if i == 0 {
			adjustment = "5"
		}
		cmd := exec.Command("nice", append([]string{"-n", adjustment, os.Args[0], selection}, args...)...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		// It dies with this process, however that ends; and what it has started, with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		ended[i] = make(chan error, 1)
		process.OnOwnThread(func() { ended[i] <- cmd.Run() })
	}
	for i := range selections {
		err := <-ended[i]
		fmt.Print(outputs[i].String())
		if err != nil {
			code = 1
			fmt.Printf("one part of the tests: %v\n", err)
		}
	}
	return code, true
}

// parts returns the flags that select each part. What the first two run the last one skips, so that no test is in none.
func parts() (selections [3]string, err error) {
	sharing, others, err := tests()
	if err != nil {
		return selections, err
	}
	var second []string // those that take long often stand beside one another
	for i, name := range others {
		if i%2 == 0 {
			second = append(second, name)
		}
	}
	names := func(of ...string) string { return "^(" + strings.Join(of, "|") + ")$" }
	return [3]string{
		"-test.run=" + names(sharing...), "-test.run=" + names(second...), "-test.skip=" + names(slices.Concat(sharing, second)...),
	}, nil
}

// tests are the names of the tests that are marked parallel, and of the others.
func tests() (sharing, others []string, err error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, nil, fmt.Errorf("finding the tests: %w", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the tests: %w", err)
		}
		for _, d := range parsed.Decls {
			f, is := d.(*ast.FuncDecl)
			switch {
			case !is || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain":
			case slices.ContainsFunc(f.Body.List, marksParallel):
				sharing = append(sharing, f.Name.Name)
			default:
				others = append(others, f.Name.Name)
			}
		}
	}
	if len(sharing) == 0 || len(others) == 0 {
		return nil, nil, errors.New("reading the tests: none is marked parallel, or each")
	}
	return sharing, others, nil
}

// marksParallel reports whether a statement is a call of parallel.
func marksParallel(s ast.Stmt) bool {
	e, is := s.(*ast.ExprStmt)
	if !is {
		return false
	}
	call, is := e.X.(*ast.CallExpr)
	if !is {
		return false
	}
	name, is := call.Fun.(*ast.Ident)
	return is && name.Name == "parallel"
}

// TestParts: each test is in one part, and those that are marked parallel are in the first.
func TestParts(t *testing.T) {
	selections, err := parts()
	if err != nil {
		t.Fatal(err)
	}
	sharing, others, err := tests()
	if err != nil {
		t.Fatal(err)
	}
	runs := func(name string) (by []int) {
		for i, selection := range selections {
			how, text, _ := strings.Cut(selection, "=")
			if regexp.MustCompile(text).MatchString(name) == (how == "-test.run") {
				by = append(by, i)
			}
		}
		return by
	}
	var of [3]int
	for _, name := range slices.Concat(sharing, others, []string{"TestOverlooked"}) {
		by := runs(name)
		if len(by) != 1 || (by[0] == 0) != slices.Contains(sharing, name) {
			t.Errorf("%s is in the parts %v", name, by)
			continue
		}
		of[by[0]]++
	}
	if of[0] != len(sharing) || of[1] < len(others)/2 || of[2] < len(others)/2 {
		t.Errorf("the parts have %d tests", of)
	}
	if !slices.Contains(sharing, "TestUndo") || !slices.Contains(others, "TestParts") {
		t.Errorf("%q are marked parallel, and %q are not", sharing, others)
	}
}
