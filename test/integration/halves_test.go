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

// runHalves runs the tests in two processes, each with a control plane of its own. Those that share a controller are all in one of
// them. The others run one by one and mostly wait, so most are in the second process, and both end at about the same time. It does
// so with CONTROL_PLANES=2, if no certain tests are asked for; otherwise it returns false.
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
	sharing, others, err := allTests()
	if err != nil {
		return selections, err
	}
	first := sharing
	for i, name := range others {
		if i%5 == 0 { // of these tests, which take 800 s, beside those that share a controller, which take 420 s
			first = append(first, name)
		}
	}
	pattern := "^(" + strings.Join(first, "|") + ")$"
	return [2]string{"-test.run=" + pattern, "-test.skip=" + pattern}, nil
}

// allTests returns the names of the tests that are marked parallel, and so share a controller, and of the others, in order.
func allTests() (sharing, others []string, err error) {
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
			case !is || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") || f.Name.Name == "TestMain":
			case slices.ContainsFunc(f.Body.List, marksParallel):
				sharing = append(sharing, f.Name.Name)
			default:
				others = append(others, f.Name.Name)
			}
		}
	}
	if len(sharing) == 0 {
		return nil, nil, errors.New("reading the tests: none is marked parallel")
	}
	slices.Sort(others)
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

// TestHalves: each test is in one half, and all that share a controller are in the first one.
func TestHalves(t *testing.T) {
	selections, err := halves()
	if err != nil {
		t.Fatal(err)
	}
	sharing, others, err := allTests()
	if err != nil {
		t.Fatal(err)
	}
	runs := func(half int, name string) bool {
		how, text, _ := strings.Cut(selections[half], "=")
		return regexp.MustCompile(text).MatchString(name) == (how == "-test.run")
	}
	for _, name := range slices.Concat(sharing, others, []string{"TestUndoOverlooked"}) {
		if runs(0, name) == runs(1, name) {
			t.Errorf("%s is in both halves, or in none", name)
		}
	}
	for name, half := range map[string]int{"TestUndo": 0, "TestUndoOverlooked": 1} {
		if !runs(half, name) {
			t.Errorf("%s is not in half %d", name, half+1)
		}
	}
}
