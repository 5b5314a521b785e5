package promapi

import (
	"regexp"
	"strconv"
	"strings"
)

// AnyOf is a matcher of PromQL: the label has one of the values.
func AnyOf(label string, values []string) string { return label + "=~" + Alternatives(values) }

// Alternatives is what may follow =~ in PromQL, quotes included: one of the values, letter by letter. Whatever stands in a value, it is no
// part of the regular expression, and does not end the string.
func Alternatives(values []string) string {
	quoted := make([]string, len(values))
	for i, value := range values {
		// What is no UTF-8 is no value of a label, and would make the whole query a bad one.
		quoted[i] = regexp.QuoteMeta(strings.ToValidUTF8(value, "\uFFFD"))
	}
	return strconv.Quote(strings.Join(quoted, "|"))
}
