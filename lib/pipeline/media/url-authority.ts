/** What Go's net/url takes for the authority of a URL: `userinfo@host:port` (inference.md 5.6). */

const USERINFO = /^(?:[\w\-.:~!$&'()*+,;=@]|%[\dA-Fa-f]{2})*$/;

// Names may be escaped only beyond ASCII, the percent sign itself aside.
const NAME = String.raw`[\w!"$&'()*+,\-.;<=>\]~\x80-\xff]|%25|%[89A-Fa-f][\dA-Fa-f]`;
const HOST = new RegExp(String.raw`^(?:${NAME})*(?::\d*)?$`);
/** Only the last colon begins a port: Go tolerates the others unless the scheme is http or https. */
const HOST_WITH_COLONS = new RegExp(String.raw`^(?:${NAME}|:)*:\d*$`);

// Of a zone, what a name may contain can be escaped too, and so can blanks.
const ZONE_ESCAPES = String.raw`%(?:2[0-24-9A-Ea-e]|3[\dA-Ea-e]|[46][1-9A-Fa-f]|5[\dABDFabdf]|7[\dAEae])`;
const ZONE = String.raw`(?:[\w!"$&'()*+,\-.:;<=>\]~\x80-\xff]|${ZONE_ESCAPES})+`;
const IP_LITERAL = new RegExp(String.raw`^\[([\dA-Fa-f:.]*)(?:%25${ZONE})?\](?::\d*)?$`);

const GROUP = /^[\dA-Fa-f]{1,4}$/;
const OCTET = String.raw`(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])`;
const IPV4 = new RegExp(String.raw`^(?:${OCTET}\.){3}${OCTET}$`);
const IPV6_GROUPS = 8;

/** An IPv6 address without a zone (RFC 4291 section 2.2). */
function isIpv6(text: string): boolean {
  const halves = text.split('::');
  if (halves.length > 2) return false;
  const groups = halves.flatMap((half) => (half === '' ? [] : half.split(':')));
  // An IPv4 address stands for the last two groups.
  const ipv4 = IPV4.test(groups.at(-1) ?? '') && !text.endsWith(':');
  const plain = ipv4 ? groups.slice(0, -1) : groups;
  const count = groups.length + (ipv4 ? 1 : 0);
  return (
    plain.every((group) => GROUP.test(group)) &&
    (halves.length === 2 ? count < IPV6_GROUPS : count === IPV6_GROUPS)
  );
}

function isHost(host: string, https: boolean): boolean {
  const literal = IP_LITERAL.exec(host);
  if (literal !== null) return isIpv6(literal[1]!);
  return HOST.test(host) || (!https && HOST_WITH_COLONS.test(host));
}

/** Whether Go 1.26 accepts the authority of an https URL, or of another one. Characters beyond ASCII: any of 0x80 to 0xff. */
export function isAuthority(authority: string, https: boolean): boolean {
  const at = authority.lastIndexOf('@');
  return USERINFO.test(authority.slice(0, Math.max(at, 0))) && isHost(authority.slice(at + 1), https);
}
