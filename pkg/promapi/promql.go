package promapi

import (
	"errors"
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

var matcher = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*$`)

// ParseMatcher returns a matcher as PromQL writes it. The quotes around its value may be missing, as in a shell.
func ParseMatcher(text string) (string, error) {
	parts := matcher.FindStringSubmatch(text)
	if parts == nil {
		return "", errors.New("want a label, one of =, !=, =~ and !~, and a value")
	}
	label, operator, value := parts[1], parts[2], parts[3]
	if strings.HasPrefix(value, `"`) {
		unquoted, err := strconv.Unquote(value)
		if err != nil {
			return "", errors.New("the quotes do not end where the value ends")
		}
		value = unquoted
	}
	if strings.HasSuffix(operator, "~") {
		if _, err := regexp.Compile("^(?:" + value + ")$"); err != nil {
			return "", err
		}
	}
	return label + operator + strconv.Quote(value), nil
}
