c = get_config()  # noqa: F821

c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 8888
c.ServerApp.port_retries = 0
c.ServerApp.root_dir = "/home/jupyter"
c.ServerApp.open_browser = False

# Reached through forkd alone, which asks for its own token or link and refuses the pages of other sites.
c.ServerApp.token = ""
c.ServerApp.password = ""
c.ServerApp.disable_check_xsrf = True
c.ServerApp.allow_remote_access = True
c.ServerApp.allow_origin = "*"

# Under emulation, a kernel takes its time to answer for the first time.
c.MappingKernelManager.kernel_info_timeout = 600
