c = get_config()  # noqa: F821

c.InteractiveShellApp.exec_files = ["/etc/ipython/reseed.py"]
