//go:build integration || around

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

// runParts runs the tests in as many processes as $CONTROL_PLANES says, each with a control plane of its own. Those that share a
// controller are all in the first one, which keeps the processors busy. The others run one by one and mostly wait, so they are in the
// other processes. It returns false if that is one process, or if certain tests are asked for.
func runParts() (code int, done bool) {
	flag.Parse()
	n, _ := strconv.Atoi(os.Getenv("CONTROL_PLANES"))
	if asked := []string{"run", "skip", "list"}; n < 2 || slices.ContainsFunc(asked, func(name string) bool {
		return flag.Lookup("test."+name).Value.String() != ""
	}) {
		return 0, false
	}
	selections, err := parts(n)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	ended, outputs := make([]chan error, n), make([]strings.Builder, n)
	for i, selection := range selections {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile") })
		// Those that wait go first.
		cmd := exec.Command("nice", append([]string{"-n", strconv.Itoa(5 - min(5*i, 5)), os.Args[0], selection}, args...)...)
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
			fmt.Printf("part %d of the tests: %v\n", i+1, err)
		}
	}
	return code, true
}

// parts returns the flags that select each of n parts. The last one skips what the others run, so that no test is in none.
func parts(n int) (selections []string, err error) {
	sharing, others, err := allTests()
	if err != nil {
		return nil, err
	}
	chosen := make([][]string, n-1)
	chosen[0] = sharing
	for i, name := range others {
		if part := 1 + i%(n-1); part < n-1 {
			chosen[part] = append(chosen[part], name)
		}
	}
	pattern := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	for _, names := range chosen {
		selections = append(selections, "-test.run="+pattern(names))
	}
	return append(selections, "-test.skip="+pattern(slices.Concat(chosen...))), nil
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

// TestParts: each test is in one part, and all that share a controller are in the first one.
func TestParts(t *testing.T) {
	sharing, others, err := allTests()
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 3; n++ {
		selections, err := parts(n)
		if err != nil || len(selections) != n {
			t.Fatalf("%d parts: %v", len(selections), err)
		}
		for _, name := range slices.Concat(sharing, others, []string{"TestUndoOverlooked"}) {
			var in []int
			for i, selection := range selections {
				how, text, _ := strings.Cut(selection, "=")
				if regexp.MustCompile(text).MatchString(name) == (how == "-test.run") {
					in = append(in, i)
				}
			}
			if len(in) != 1 || slices.Contains(sharing, name) != (in[0] == 0) {
				t.Errorf("of %d parts, %s is in %v", n, name, in)
			}
		}
	}
}
