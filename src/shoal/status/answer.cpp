#include "shoal/status/answer.h"

#include <algorithm>
#include <cctype>
#include <span>

#include "shoal/base/hmac.h"
#include "shoal/status/pages.h"

namespace shoal {
namespace {

constexpr std::string_view kCookie = "shoal_status=";

bool is_token(std::string_view said, const std::string& token) {
  const auto bytes = [](std::string_view text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  return !token.empty() && same_secret(bytes(said), bytes(token));
}

// Returns the name in "name:port", "[address]:port" or "name", in lower case.
std::string name_in(std::string_view host) {
  const std::size_t end = host.starts_with('[') ? host.find(']') : host.find(':');
  std::string name(host.substr(0, end));
  if (host.starts_with('[')) name.erase(0, 1);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// Returns whether only digits, dots and, of IPv6, colons and letters up to f are in it.
bool is_address(const std::string& name) {
  const bool is_v6 = name.find(':') != std::string::npos;
  return !name.empty() && std::ranges::all_of(name, [&](unsigned char c) {
    return std::isdigit(c) || c == '.' || (is_v6 && (c == ':' || std::isxdigit(c)));
  });
}

bool is_named(std::string_view host, const WebPolicy& policy) {
  const std::string name = name_in(host);
  if (name == "localhost" || name == "127.0.0.1" || name == "::1") return true;
  return policy.open && (is_address(name) || std::ranges::count(policy.names, name) > 0);
}

std::string_view value_in(std::string_view list, std::string_view key, char separator) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(separator), list.size());
    std::string_view one = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (one.starts_with(key)) return one.substr(key.size());
  }
  return {};
}

WebAnswer refusal(int status, std::string words) {
  WebAnswer answer{.status = status};
  answer.body = std::move(words);
  answer.body += '\n';
  return answer;
}

// Returns the page for who has just said the token in its address, which then need not be there.
WebAnswer remember(const WebPolicy& policy) {
  std::string cookie = std::string(kCookie) + policy.token + "; Path=/; HttpOnly; SameSite=Strict";
  if (policy.encrypted) cookie += "; Secure";
  return {.status = 303, .headers = {{"Location", "/"}, {"Set-Cookie", std::move(cookie)}}};
}

WebAnswer content_of(std::string_view path, const StatusBoard& board) {
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(status_page())};
  if (path == "/status.json")
    return {.type = "application/json", .body = status_json(board.look())};
  if (path == "/metrics") {
    Result<std::string> text = prometheus_text(board.look());
    if (!text.ok()) return refusal(501, text.error().message);
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(text).value()};
  }
  return refusal(404, "there are / and /status.json and /metrics here");
}

}  // namespace

WebAnswer answer_to(const WebRequest& request, const WebPolicy& policy, const StatusBoard& board) {
  if (!is_named(request.host, policy))
    return refusal(403, "this server does not answer to the name '" + name_in(request.host) +
                            "': use its address");
  const std::size_t mark = std::min(request.target.find('?'), request.target.size());
  const std::string_view path = request.target.substr(0, mark);
  if (policy.open) {
    const std::string_view query = request.target.substr(std::min(mark + 1, request.target.size()));
    const std::string_view asked = value_in(query, "token=", '&');
    std::string_view bearer = request.authorization;
    constexpr std::string_view kBearer = "Bearer ";
    bearer = bearer.starts_with(kBearer) ? bearer.substr(kBearer.size()) : std::string_view();
    if (path == "/" && is_token(asked, policy.token)) return remember(policy);
    if (!request.certified && !is_token(asked, policy.token) && !is_token(bearer, policy.token) &&
        !is_token(value_in(request.cookie, kCookie, ';'), policy.token)) {
      WebAnswer answer = refusal(401,
                                 "the token is missing or wrong: ask for /?token=TOKEN, or "
                                 "send 'Authorization: Bearer TOKEN'");
      answer.headers.emplace_back("WWW-Authenticate", "Bearer");
      return answer;
    }
  }
  if (request.method != "GET" && request.method != "HEAD") {
    WebAnswer answer = refusal(405, "this server only shows");
    answer.headers.emplace_back("Allow", "GET, HEAD");
    return answer;
  }
  return content_of(path, board);
}

}  // namespace shoal
