// Send the colour scheme (light or dark) and the time zone of this browser to the server in cookies. The user's choice
// stays in local storage: "light", "dark", or absent for the system's scheme.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const effective = () => localStorage.getItem("coterie-theme") || (dark.matches ? "dark" : "light");
  const setCookie = (name, value) => {
    const before = document.cookie.split("; ").find((cookie) => cookie.startsWith(name + "="));
    const cookie = `${name}=${encodeURIComponent(value)}`;
    if (before === cookie) return false;
    document.cookie = `${cookie}; path=/; max-age=31536000; samesite=lax`;
    return document.cookie.includes(cookie);
  };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const changed = [setCookie("coterie-theme", effective()), setCookie("coterie-zone", zone)].some(Boolean);
  document.documentElement.dataset.theme = effective();
  if (changed && document.documentElement.dataset.drawn !== undefined) location.reload();
  dark.addEventListener("change", () => {
    document.documentElement.dataset.theme = effective();
    const drawn = document.documentElement.dataset.drawn !== undefined; // other pages only change their style
    if (setCookie("coterie-theme", effective()) && drawn) location.reload();
  });
  if (document.documentElement.dataset.drawn !== undefined) {
    // Leave the page when its session has ended elsewhere or with a restart of the console.
    const checkSession = async () => {
      if (document.hidden) return;
      const response = await fetch("/session", { cache: "no-store" }).catch(() => null);
      if (response && response.ok && !(await response.json()).signed_in && !window.coterieLeft) {
        window.coterieLeft = true;
        location.href = `/signin?why=${encodeURIComponent("Your session has ended.")}&next=${encodeURIComponent(location.pathname)}`;
      }
    };
    setInterval(checkSession, 20000);
    document.addEventListener("visibilitychange", checkSession);
  }
  window.coterieToggleTheme = () => {
    localStorage.setItem("coterie-theme", effective() === "dark" ? "light" : "dark");
    setCookie("coterie-theme", effective());
    location.reload();
  };
})();
