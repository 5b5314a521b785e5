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

// runGroups runs all tests of the package in as many processes at once as $CONTROL_PLANES says, each with a control
// plane of its own. Those that share a controller are one group. The others run one by one and mostly wait, so they
// are dealt out among the rest. Without $CONTROL_PLANES, or where certain tests are asked for, it returns false.
func runGroups() (code int, done bool) {
	flag.Parse()
	number, err := strconv.Atoi(os.Getenv("CONTROL_PLANES"))
	if asked := []string{"run", "skip", "list"}; err != nil || number < 2 || slices.ContainsFunc(asked, func(name string) bool {
		return flag.Lookup("test."+name).Value.String() != ""
	}) {
		return 0, false
	}
	sharing, alone, err := readTests()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	groups := append([][]string{sharing}, deal(alone, number-1)...)
	ended := make([]chan error, number)
	outputs := make([]strings.Builder, number)
	for i, selection := range selections(groups) {
		args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(arg string) bool { return strings.HasPrefix(arg, "-test.testlogfile") })
		cmd := exec.Command(os.Args[0], append(args, selection)...)
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		// It dies with this process, however that ends; and what it has started, with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		ended[i] = make(chan error, 1)
		process.OnOwnThread(func() { ended[i] <- cmd.Run() })
	}
	for i := range groups {
		err := <-ended[i]
		fmt.Print(outputs[i].String())
		if err != nil {
			code = 1
			fmt.Printf("group %d of %d, %s and others: %v\n", i+1, number, groups[i][0], err)
		}
	}
	return code, true
}

// selections are the flags that have a process run each group. The last one skips what the groups before it have,
// so that no test is in none.
func selections(groups [][]string) (flags []string) {
	last := len(groups) - 1
	pattern := func(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }
	for _, names := range groups[:last] {
		flags = append(flags, "-test.run="+pattern(names))
	}
	return append(flags, "-test.skip="+pattern(slices.Concat(groups[:last]...)))
}

// deal deals names out to so many groups.
func deal(names []string, number int) [][]string {
	groups := make([][]string, number)
	for i, name := range names {
		groups[i%number] = append(groups[i%number], name)
	}
	return groups
}

// readTests are the names of the tests that are marked parallel, and of the others.
func readTests() (sharing, alone []string, err error) {
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
				alone = append(alone, f.Name.Name)
			}
		}
	}
	if len(sharing) == 0 || len(alone) == 0 {
		return nil, nil, errors.New("reading the tests: there are none")
	}
	return sharing, alone, nil
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

// TestGroups: every test is in one group, and one that readTests has overlooked, too.
func TestGroups(t *testing.T) {
	sharing, alone, err := readTests()
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]int{}
	for _, selection := range selections(append([][]string{sharing}, deal(alone, 2)...)) {
		how, text, _ := strings.Cut(selection, "=")
		pattern := regexp.MustCompile(text)
		for _, name := range append(slices.Concat(sharing, alone), "TestOverlooked") {
			if pattern.MatchString(name) == (how == "-test.run") {
				in[name]++
			}
		}
	}
	for name, groups := range in {
		if groups != 1 {
			t.Errorf("%s is in %d groups", name, groups)
		}
	}
	if want := len(sharing) + len(alone) + 1; len(in) != want {
		t.Errorf("%d of %d tests are in a group", len(in), want)
	}
}
