(() => {
  "use strict";
  const root = document.documentElement;

  // Theme: the system's until somebody chooses; a page opened from a disk may have no storage.
  const store = (value) => {
    try {
      if (value) localStorage.setItem("ppo-doctor-theme", value);
      return localStorage.getItem("ppo-doctor-theme");
    } catch { return null; }
  };
  const toggle = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const name = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.setAttribute("aria-label", `${toggle.textContent} colours`); };
  const kept = store();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  toggle.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; store(root.dataset.theme); name(); });
  system.addEventListener("change", name);
  name();
  toggle.hidden = false;
})();
