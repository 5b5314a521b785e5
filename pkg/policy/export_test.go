package policy

// ParseTimeout is for the tests.
var ParseTimeout = parseTimeout
