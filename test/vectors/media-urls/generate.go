// Command generate prints a table of URLs with the verdict of Go's net/url. See README.md.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"runtime"
	"strings"
)

// hosts are authorities, each of which is tried under both schemes.
var hosts = []string{
	"", "h", "H.Example", "h.example.", "-", "_", "é.example", "日本", "1.2.3.4", "1.2.3.400", "127.1",
	// ports
	"h:", "h:0", "h:80", "h:99999", "h:0000000000000000000080", "h:-1", "h:+1", "h:a", "h:8a", "h: 80", "h:80 ", "h:٣",
	":", ":80", "a:b", "a:1:2", "a:b:80", "a::80", "::", "::1", "a:1:", "a:1:b", "1:2:3:x",
	// characters
	"a b", "a\\b", "a|b", "a^b", "a{b", "a}b", "a`b", "a<b", "a>b", "a\"b", "a'b", "a(b)", "a!b", "a$b", "a&b", "a*b",
	"a+b", "a,b", "a;b", "a=b", "a~b", "a_b", "a]b", "a]", "]", "a[b", "[", "a[", "a[]", "[]", "[[::1]", "[::1", "::1]",
	// escapes
	"a%20b", "a%41b", "a%7fb", "a%00b", "a%25b", "a%25", "a%2525", "a%2541", "a%80b", "a%c3%a9b", "a%ffb", "a%FFb", "a%fFb",
	"a%", "a%2", "a%e", "a%zz", "a%8z", "a%z8", "%", "%25", "%25zz", "a%25%zz", "a%3a80", "a%40b", "a%2fb", "h:%380", "h:8%30",
	// userinfo
	"@", "@h", "u@h", "u:p@h", ":@h", "u:@h", ":p@h", "u:p:q@h", "a@b@h", "a@b:c@h:80", "@@h", "u@", "u:p@", "u%41@h",
	"u%40h@h", "u%00@h", "u%c3@h", "u%@h", "u%4@h", "u%zz@h", "u:%@h", "u:%4@h", "u%:41@h", "u%4:1@h", "u:p%41@h", "u%25@h",
	"u p@h", "u\\p@h", "u|p@h", "ü@h", "u[@h", "u]@h", "[u]@h", "[::1]@h", "u\"@h", "u<@h", "u>@h", "u^@h", "u`@h", "u{@h", "u}@h",
	"-._~!$&'()*+,;=@h", "u@h b", "u@h%41", "u@[::1]", "u:p@[::1]:80", "u@[::1", "u@a:b", "u@a:1:2",
	// IP-literals
	"[::]", "[::1]", "[1::]", "[1::8]", "[::1]:", "[::1]:80", "[::1]:a", "[::1]80", "[::1]a", "[::1] ", "[::1]:80:81", "[::1]]",
	"[1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7]", "[1:2:3:4:5:6:7:8:9]", "[1:2:3:4:5:6:7::]", "[::2:3:4:5:6:7:8]", "[1::3:4:5:6:7:8]",
	"[1:2:3:4::5:6:7:8]", "[::1:2:3:4:5:6:7:8]", "[1:2:3:4:5:6:7:8::]", "[1::2::3]", "[1::2:3:4:5:6::7:8]", "[::1:2:3:4:5:6:7:8::]", "[:::]", "[::1:]", "[:1::]", "[1:]", "[:1]", "[1]",
	"[:]", "[::::]", "[1:::2]", "[ABCD::ef01]", "[12345::]", "[00001::]", "[0001::]", "[ffff::]", "[g::]", "[::g]", "[::-1]", "[:: 1]",
	"[1.2.3.4]", "[::1.2.3.4]", "[::ffff:1.2.3.4]", "[1:2:3:4:5:6:1.2.3.4]", "[1:2:3:4:5:6:7:1.2.3.4]", "[1:2:3:4:5:1.2.3.4]",
	"[1:2:3:4:5::1.2.3.4]", "[1:2:3:4:5:6::1.2.3.4]", "[::1.2.3]", "[::1.2.3.4.5]", "[::1.2.3.256]", "[::1.2.3.04]", "[::1.2.3.00]",
	"[::0.0.0.0]", "[::1.2.3.]", "[::.1.2.3]", "[::1..3.4]", "[::1.2.3.4:5]", "[1.2.3.4::]", "[::1.2.3.4::]", "[::255.255.255.255]",
	"[::1.2.3.a]", "[::a.2.3.4]", "[::1.2.3.1234]", "[::12345.2.3.4]", "[a.b::]", "[v1.x]", "[h]", "[h.example]", "[é]", "[::é]", "[ ::1]",
	// zones
	"[fe80::1%25en0]", "[fe80::1%25en0]:80", "[fe80::1%25]", "[fe80::1%en0]", "[fe80::1%2]", "[fe80::1%]", "[fe80::1%25%20]",
	"[fe80::1%25a%20b]", "[fe80::1%25a b]", "[fe80::1%2525]", "[fe80::1%25%25]", "[fe80::1%25%]", "[fe80::1%25%4]", "[fe80::1%25%zz]",
	"[fe80::1%25%41]", "[fe80::1%25%40]", "[fe80::1%25%2f]", "[fe80::1%25%2F]", "[fe80::1%25%3f]", "[fe80::1%25%23]", "[fe80::1%25%0a]",
	"[fe80::1%25%7f]", "[fe80::1%25%80]", "[fe80::1%25%c3%a9]", "[fe80::1%25é]", "[fe80::1%25a]b]", "[fe80::1%25a]b]:80", "[fe80::1%25a[b]",
	"[fe80::1%25a\\b]", "[fe80::1%25a|b]", "[fe80::1%25a:b]", "[fe80::1%25:80]", "[fe80::1%25a]:80]", "[fe80::1%25%5b]", "[fe80::1%25%5c]",
	"[fe80::1%25%5d]", "[fe80::1%25%5e]", "[fe80::1%25%5f]", "[fe80::1%25%60]", "[fe80::1%25%7b]", "[fe80::1%25%7e]", "[fe80::1%25%24]",
	"[%25en0]", "[::%25a]", "[1.2.3.4%25a]", "[::ffff:1.2.3.4%25a]", "[::1.2.3.4%25a]", "[fe80::1%41%25a]", "[fe80::%31%25a]", "[fe80::1%80]",
	"[::1%25a", "[fe80::1]%25a", "[fe80::1]:%38", "[fe80::1%25a@b]",
}

// tails follow an authority, a slash, or the scheme itself.
var tails = []string{
	"", "/", "/a b", "/a\\b", "/a%41", "/a%", "/a%4", "/a%zz", "/%", "/%00", "/%80", "/é", "/a|b", "/a^`{}<>\"", "/[", "/a:b@c", "//",
	"///", "/%2", "/%2/5", "/%%25", "/%25%", "/*",
	"?", "??", "?q", "?q=%zz", "?%", "?a b", "?a?b", "?#", "?%#", "?#%", "?#%zz", "?é\\|^", "/?%", "/%?4", "/%4?1", "/a%?",
	"#", "##", "#f", "#f%41", "#f%", "#f%4", "#f%zz", "#a b", "#a#b", "#a#%", "#?%", "#a?%zz", "#é\\|^", "/a%#41", "/a%4#1", "/%#", "#%#41", "#%25",
	"#/%z", "#[", "/a#?q=%zz",
}

// whole are complete URLs: of data, and those that the table of hosts and tails does not reach.
var whole = []string{
	"https:", "data:", "HTTPS:", "DATA:", "hTTps:x", "https:h", "https:h%zz", "https: ", "https:%", "https:*", "*",
	"https:/h", "https:/%zz", "https:///a", "https:///%zz", "https:////h b/", "https:/\\h/%z", "https:\\\\h\\%zz", "https:%2f%2fh", "https:?//h h",
	"data:,", "data:,%zz", "data:,%", "data:,a%2", "data:image/png;base64,AAAA", "data:image/png;base64,AA+/AA==", "data:;base64,", "data:,#", "data:,#%",
	"data:,#%zz", "data:,a#b%20c", "data:,?%zz", "data:,?#%zz", "data:,a b", "data:,é", "data:,\"'<>\\^`{|}",
	"data:image/svg+xml,<svg width=\"100%\"></svg>", "data:image/svg+xml,<svg fill=\"#fff\" width=\"100%\"></svg>",
	"data:image/svg+xml,<svg width=\"100%\" fill=\"#fff\"></svg>", "data:image/svg+xml,%3Csvg fill=%22%23fff%22%3E", "data:image/svg+xml;utf8,<svg fill='#fff'>50% </svg>",
	"data:/a%zz", "data:/a%41", "data:/9j/4AAQSkZJRg==", "data://h/", "data://h b/", "data://a:b:80/", "data://a:b:c/", "data:///a%", "data://image/png;base64,AAAA",
	"data://AAAA+BBBB==", "data:%2f/%zz", "data:?%#%", "data:[", "data:@", "data::", "data::80", "data:a:b",
}

// controls are placed into each part of a URL.
var controls = []string{"\x00", "\n", "\x1f", "\x7f", "\u0080", "\ufffd", "\U0001f600"}
var placed = []string{
	"https:%sx", "https:/a%s", "https://%s", "https://h%s", "https://h%s/", "https://u%s@h/", "https://h:8%s0/", "https://h/%s", "https://h/a?%s", "https://h/a?b%s#c",
	"https://h/#%s", "https://h/#a%s", "https://[fe80::1%%25%s]/", "https://[::%s1]/", "data:%s", "data:,%s", "data:,a%sb", "data:,?%s", "data:,#%s", "data:/%s", "data://%s", "data:image/png;base64,AAAA%sAAAA",
}

// pieces are what random URLs are made of.
var pieces = []string{
	"/", "/", "//", "?", "#", "@", ":", ":", ":80", "[", "]", "[::1]", "[fe80::1%25", "%25", "%", "%4", "%41", "%e4", "%zz", "%20", "%8", "a", "b", "h.example",
	"0", "1", "f", "ff:", "::", "1.2.3.4", ".", " ", "\\", "|", "^", "\"", "<", "~", "!", "-", "é", "u:p@", "=", "\n", "\x7f", "z", "%5d", "%3a",
}

const (
	seed   = 20261122
	random = 500
)

func quoted(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(out.String()), "\x7f", `\u007f`)
}

func main() {
	var urls []string
	for _, scheme := range []string{"https:", "data:"} {
		for _, host := range hosts {
			urls = append(urls, scheme+"//"+host)
		}
		for _, tail := range tails {
			urls = append(urls, scheme+"//h"+tail, scheme+"/"+tail, scheme+"x"+tail)
		}
	}
	urls = append(urls, whole...)
	for _, control := range controls {
		for _, format := range placed {
			urls = append(urls, fmt.Sprintf(format, control))
		}
	}
	source := rand.New(rand.NewPCG(seed, 0))
	for range random {
		made := []string{"https://", "https://", "https:", "data:", "data://", "data:/", "https://["}[source.IntN(7)]
		for range 1 + source.IntN(7) {
			made += pieces[source.IntN(len(pieces))]
		}
		urls = append(urls, made)
	}

	seen := map[string]bool{}
	lists := map[bool][]string{}
	for _, each := range urls {
		lower := strings.ToLower(each)
		if seen[each] || !strings.HasPrefix(lower, "https:") && !strings.HasPrefix(lower, "data:") {
			continue
		}
		seen[each] = true
		_, err := url.Parse(each)
		lists[err == nil] = append(lists[err == nil], "    "+quoted(each))
	}
	fmt.Fprintf(os.Stdout, "{\n  \"go\": %q,\n  \"accepted\": [\n%s\n  ],\n  \"refused\": [\n%s\n  ]\n}\n",
		runtime.Version(), strings.Join(lists[true], ",\n"), strings.Join(lists[false], ",\n"))
}
