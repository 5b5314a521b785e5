// Command program uses a module.
package main

import (
	"fmt"
	"os"

	"golang.org/x/mod/semver"
)

func main() { fmt.Println(semver.Canonical(os.Args[1])) }
