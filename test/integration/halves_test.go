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
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/inplace-rollout/inplace-rollout/test/process"
)

// runHalves runs the tests that share a controller in one process, and all others beside them in another one, each
// process with a control plane of its own: those others run one by one, and mostly wait. It does so with
// CONTROL_PLANES=2, if no certain tests are asked for; otherwise it returns false.
func runHalves() (code int, done bool) {
	flag.Parse()
	if asked := []string{"run", "skip", "list"}; os.Getenv("CONTROL_PLANES") != "2" || slices.ContainsFunc(asked, func(name string) bool {
		return flag.Lookup("test."+name).Value.String() != ""
	}) {
		return 0, false
	}
	selections, err := halves()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	var ended [2]chan error
	var outputs [2]strings.Builder
	for i, selection := range selections {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile") })
		// The first half keeps the processors busy. The second one waits, and takes the longest: it goes first.
		cmd := exec.Command("nice", append([]string{"-n", strconv.Itoa(5 - 5*i), os.Args[0], selection}, args...)...)
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
			fmt.Printf("one half of the tests: %v\n", err)
		}
	}
	return code, true
}

// halves returns the flags that select each half. What the first one runs the second one skips, so that no test
// is in none.
func halves() (selections [2]string, err error) {
	sharing, err := sharingTests()
	if err != nil {
		return selections, err
	}
	pattern := "^(" + strings.Join(sharing, "|") + ")$"
	return [2]string{"-test.run=" + pattern, "-test.skip=" + pattern}, nil
}

// sharingTests are the names of the tests that are marked parallel.
func sharingTests() (names []string, err error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, fmt.Errorf("finding the tests: %w", err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("reading the tests: %w", err)
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && strings.HasPrefix(f.Name.Name, "Test") && slices.ContainsFunc(f.Body.List, marksParallel) {
				names = append(names, f.Name.Name)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("reading the tests: none is marked parallel")
	}
	return names, nil
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

// TestHalves: each test is in one half, whether it is marked parallel or not.
func TestHalves(t *testing.T) {
	selections, err := halves()
	if err != nil {
		t.Fatal(err)
	}
	for name, shares := range map[string]bool{"TestUndo": true, "TestHalves": false, "TestUndoOverlooked": false} {
		for i, selection := range selections {
			how, text, _ := strings.Cut(selection, "=")
			runs := regexp.MustCompile(text).MatchString(name) == (how == "-test.run")
			if want := shares == (i == 0); runs != want {
				t.Errorf("%s: in half %d: %t", name, i+1, runs)
			}
		}
	}
}
