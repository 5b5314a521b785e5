package controlplane

import (
	"context"
	"fmt"
	"os"
	"time"
)

// RunTests runs the tests of a package on a control plane that they share, once setUp has made it
// ready, and returns the exit code. TearDown ends what setUp has started; it may be nil, and is
// called after an error, too. If anything fails, the logs stay.
func RunTests(tests interface{ Run() int }, o Options, setUp func(context.Context, *ControlPlane) (tearDown func(), err error)) (code int) {
	failed := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cp, err := Start(ctx, o)
	if err != nil {
		failed(err)
		return code
	}
	defer func() {
		if code != 0 {
			cp.KeepLogs()
		}
		failed(cp.Stop())
	}()
	tearDown, err := setUp(ctx, cp)
	if tearDown != nil {
		defer tearDown()
	}
	if err != nil {
		failed(err)
		return code
	}
	return tests.Run()
}
